/** What the instances of a service print. */
import { ServiceLog } from '../../ui/service-log.tsx'
import type { Shown } from './shown.ts'

export const Logs = ({ service, status }: Shown) => (
  <ServiceLog service={service} isRunning={status?.running_state === 'RUNNING'} />
)
