/** One further process, as the first one sees it: its orders, in sequence, and its answers. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import type { Server } from 'node:net'
import { fileURLToPath } from 'node:url'
import type { Notice, Numbered, Order, Pulse } from './messages.ts'

export interface Member {
  readonly pid: number
  pulse: Pulse | null
  /** It has received all data, and accepts connections. */
  accepts: boolean
  /** It accepts no more, and ends by itself. */
  isLeaving: boolean
  /** It is ready for orders; false: it ended before. */
  readonly ready: Promise<boolean>
  readonly ended: Promise<void>
  readonly hasEnded: boolean
  /**
   * Resolves with its answer, or with null if it has ended. A process that does not answer within `withinMs` is ended,
   * so that none continues with outdated data.
   */
  ask(order: Order, withinMs?: number, listening?: Server): Promise<unknown>
  kill(): void
}

const usualMs = 5_000
const program = fileURLToPath(new URL('./worker.ts', import.meta.url))

/** For its program to be loaded. */
const readyMs = 20_000

export const startMember = (onWanted: (serviceId: string) => void): Member => {
  const child = fork(program, [], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  const asked = new Map<number, (value: unknown) => void>()
  const ready = Promise.withResolvers<boolean>()
  const ended = once(child, 'exit').then(
    () => {},
    () => {},
  )
  const late = setTimeout(() => child.kill('SIGKILL'), readyMs)
  void ready.promise.then(() => clearTimeout(late))
  let lastId = 0
  let hasEnded = false
  const member: Member = {
    ...{ pid: child.pid ?? 0, pulse: null, accepts: false, isLeaving: false, ready: ready.promise, ended },
    get hasEnded() {
      return hasEnded
    },
    async ask(order, withinMs = usualMs, listening) {
      if (hasEnded) return null
      const { promise, resolve } = Promise.withResolvers<unknown>()
      const message: Numbered = { id: ++lastId, order }
      asked.set(message.id, resolve)
      const timer = setTimeout(() => member.kill(), withinMs)
      child.send(message, listening, (error) => error !== null && member.kill())
      return promise.finally(() => clearTimeout(timer))
    },
    kill: () => void child.kill('SIGKILL'),
  }
  // Only its end counts.
  child.on('error', () => {})
  child.on('message', (notice: Notice) => {
    if (notice.kind === 'ready') ready.resolve(true)
    else if (notice.kind === 'pulse') member.pulse = notice.pulse
    else if (notice.kind === 'wanted') onWanted(notice.serviceId)
    else {
      asked.get(notice.id)?.(notice.value)
      asked.delete(notice.id)
    }
  })
  void ended.then(() => {
    hasEnded = true
    ready.resolve(false)
    for (const settle of asked.values()) settle(null)
    asked.clear()
  })
  return member
}
