/** Starts the receiver's process and waits for its messages. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { ReceiverOrder, ReceiverReport } from './receiver.ts'

export interface Receiver {
  url(path: string): string
  /** Begins to count; resolves, by the inner promise, when `count` different deliveries have come. */
  expect(count: number): Promise<ReceiverReport>
  /** Breaks all connections, those that were never answered among them. */
  forgetSilent(): Promise<void>
  close(): Promise<void>
}

const patienceMs = 120_000

export const startReceiver = async (): Promise<Receiver> => {
  const child = fork(fileURLToPath(new URL('./receiver.ts', import.meta.url)), { stdio: 'inherit' })
  const next = async (): Promise<ReceiverReport> => {
    const [report] = await once(child, 'message', { signal: AbortSignal.timeout(patienceMs) })
    return report as ReceiverReport
  }
  const order = (one: ReceiverOrder): Promise<ReceiverReport> => {
    const report = next()
    child.send(one)
    return report
  }
  const { port } = await next()
  return {
    url: (path) => `http://127.0.0.1:${port}${path}`,
    expect: (count) => order({ kind: 'await', count }),
    forgetSilent: async () => void (await order({ kind: 'forget-silent' })),
    async close() {
      if (child.exitCode !== null || child.signalCode !== null) return
      if (child.connected) child.disconnect()
      await once(child, 'exit')
    },
  }
}
