/** The log of a deployment, as it is written. */
import { useRef, useState } from 'react'
import { useStream } from '../api/stream.ts'
import { LogView, useLines } from './log-view.tsx'

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
  const { lines, add, clear, dropped } = useLines()
  const [search, setSearch] = useState('')
  const count = useRef(0)
  useStream<WireLine[]>(`/deployment/logs?environment=${environmentId}&version=${executionId}`, {
    // The stream begins with all lines again.
    onOpen: clear,
    onMessage(frame) {
      add(
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
  const shown =
    serviceId === undefined
      ? lines
      : lines.filter((line) => [serviceId, environmentId].includes((line as { about?: string }).about ?? ''))
  return (
    <LogView
      lines={shown}
      dropped={dropped}
      name={`deployment-${executionId}`}
      empty="No lines yet."
      search={search}
      onSearch={setSearch}
      showsFrom
    />
  )
}
