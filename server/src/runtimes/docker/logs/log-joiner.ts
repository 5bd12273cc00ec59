/** Several live log streams as one: each waits until its batch is taken, so that a slow reader slows the engine. */
import { createInbox } from '../../../lib/concurrency/inbox.ts'
import type { LogLine } from '../../runtime.ts'

export interface LogSource {
  id: string
  name: string
  revision: string
}

type Batches = AsyncGenerator<LogLine[]>

interface LogJoiner {
  /** Where a container's lines continue: after this line of it. */
  remember(line: LogLine): void
  /** Reads a container from its last passed line, else from `since`; again later if it is being read already. */
  join(source: LogSource, since?: string): void
  fail(error: Error): void
  /** Until aborted; rejects when `fail` was called or a stream broke. */
  batches(signal: AbortSignal): Batches
}

export const createLogJoiner = (read: (source: LogSource, since: string | undefined) => Batches): LogJoiner => {
  const lastAt = new Map<string, string>()
  const open = new Map<string, { again: boolean }>()
  const inbox = createInbox<{ lines: LogLine[]; taken: () => void }>()

  const remember = (line: LogLine): void => void lastAt.set(line.instance, line.at)

  const put = (lines: LogLine[]): Promise<void> =>
    new Promise((taken) => {
      remember(lines.at(-1)!)
      inbox.put({ lines, taken })
    })

  const pump = async (source: LogSource, since: string | undefined, state: { again: boolean }): Promise<void> => {
    do {
      state.again = false
      for await (const lines of read(source, lastAt.get(source.name) ?? since)) await put(lines)
    } while (state.again)
    open.delete(source.id)
  }

  return {
    remember,
    fail: inbox.fail,
    join: (source, since) => {
      const running = open.get(source.id)
      if (running !== undefined) {
        running.again = true
        return
      }
      const state = { again: false }
      open.set(source.id, state)
      pump(source, since, state).catch(inbox.fail)
    },
    batches: async function* (signal) {
      for await (const { lines, taken } of inbox.read(signal)) {
        yield lines
        taken()
      }
    },
  }
}
