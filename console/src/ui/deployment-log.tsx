/** The log of a deployment, as it is written. */
import { useRef, useState } from 'react'
import { useStream } from '../api/stream.ts'
import { useLog } from './log-store.ts'
import { type Filters, LogView } from './log-view.tsx'

interface WireLine {
  type: string
  timestamp: string
  details: { transmitter: { id: string; name: string }; stage: { step: string } }
  message: { safe_message: string } | null
}

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
  useStream<WireLine[]>(`/deployment/logs?environment=${environmentId}&version=${executionId}`, {
    // The stream begins with all lines again.
    onOpen: () => log.restart(),
    onMessage(frame) {
      log.add(
        frame.map(({ type, timestamp, details, message }) => ({
          id: String(count.current++),
          at: Date.parse(timestamp),
          text: message?.safe_message ?? '',
          isError: type === 'error',
          from: details.transmitter.name,
          about: details.transmitter.id,
        })),
      )
    },
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
