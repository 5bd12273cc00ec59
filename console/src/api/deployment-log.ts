/** Lines of a deployment's log: live, or of a finished deployment. */

import { answerOf, client } from './client.ts'
import type { Line } from './log-line.ts'
import { useStream } from './stream.ts'

interface WireLine {
  type: string
  timestamp: string
  details: { transmitter: { id: string; name: string }; stage: { step: string } }
  message: { safe_message: string } | null
}

export type DeploymentLine = Omit<Line, 'id' | 'about'> & { about: string; step: string }

const toLine = ({ type, timestamp, details, message }: WireLine): DeploymentLine => ({
  at: Date.parse(timestamp),
  text: message?.safe_message ?? '',
  isError: type === 'error',
  from: details.transmitter.name,
  about: details.transmitter.id,
  step: details.stage.step,
})

interface Reader {
  /** All lines are sent again. */
  onOpen(): void
  onLines(lines: DeploymentLine[]): void
}

/** Null: follows nothing. */
export const useDeploymentLines = (environmentId: string, executionId: string | null, reader: Reader): void =>
  useStream<WireLine[]>(
    executionId === null ? null : `/deployment/logs?environment=${environmentId}&version=${executionId}`,
    { onOpen: () => reader.onOpen(), onMessage: (frame) => reader.onLines(frame.map(toLine)) },
  )

/** The newest lines that the API returns at once, oldest first. */
export const readDeploymentLines = async (environmentId: string, executionId: string): Promise<DeploymentLine[]> => {
  const params = { path: { environmentId }, query: { version: executionId } }
  return (await answerOf(client.GET('/environment/{environmentId}/logs', { params }))).map(toLine)
}
