/** The log of a deployment, as it is written. */
import { useRef, useState } from 'react'
import { useDeploymentLines } from '../api/deployment-log.ts'
import { useLog } from './log-store.ts'
import { type Filters, LogView } from './log-view.tsx'

/** `serviceId`: only the lines about one service and about the whole. */
export const DeploymentLog = ({
  environmentId,
  executionId,
  serviceId,
}: {
  environmentId: string
  executionId: string
  serviceId?: string | undefined
}) => {
  const log = useLog()
  const [filters, setFilters] = useState<Filters>({ search: '', level: 'all', from: null })
  const count = useRef(0)
  useDeploymentLines(environmentId, executionId, {
    onOpen: () => log.restart(),
    onLines: (lines) => log.add(lines.map(({ step: _, ...line }) => ({ ...line, id: String(count.current++) }))),
  })
  return (
    <LogView
      log={log}
      {...(serviceId === undefined ? {} : { about: [serviceId, environmentId] })}
      name={`deployment-${executionId}`}
      empty="No lines yet."
      {...filters}
      set={(changes) => setFilters((before) => ({ ...before, ...changes }))}
    />
  )
}
