/**
 * Runs a server again after each change of its sources. The next process is loaded while the last one still serves, and
 * replaces it once it is loaded; one that cannot be loaded replaces nothing, so a mistake costs only a message and the
 * next save. A process waits for `load`, says `loaded`, waits for a `Go`, and says `ready` once it answers. One process
 * waits in advance, with the packages, which do not change.
 */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'

/** The message that makes a loaded process serve. */
export interface Go {
  /** URL of the console, which the first start prints; null: nothing is printed. */
  consoleUrl: string | null
  /** Where a debugger may attach; null: nowhere. */
  inspectPort: number | null
}

export interface DevServerParts {
  start(): ChildProcess
  go: Go
  /** Called when the last process has ended and the next one has not started. */
  between(changed: readonly string[]): Promise<void>
  say(line: string): void
}

export interface DevServer {
  /** Notes that a source has changed. */
  changed(path: string): void
  /** Resolves when a process answers, or with false when none will before the next change. */
  isReady(): Promise<boolean>
  /** Ends the process; resolves when it has ended. */
  stop(): Promise<void>
}

/** Editors and git write several files, and some of them twice. */
const quietMs = 40
/** The next process resumes interrupted work, as after any kill. */
const replacedMs = 500
const stoppedMs = 15_000

const hasEnded = ({ exitCode, signalCode }: ChildProcess): boolean => exitCode !== null || signalCode !== null

const endOf = async (child: ChildProcess): Promise<string> => {
  if (!hasEnded(child)) await once(child, 'exit')
  return child.signalCode ?? `code ${child.exitCode}`
}

const end = async (child: ChildProcess, withinMs: number): Promise<void> => {
  if (hasEnded(child)) return
  const timer = setTimeout(() => child.kill('SIGKILL'), withinMs)
  child.kill('SIGTERM')
  await endOf(child)
  clearTimeout(timer)
}

const said = (child: ChildProcess, word: string): Promise<true> =>
  new Promise((resolve) => child.on('message', (message) => message === word && resolve(true)))

/** True if a process answers, now or soon. */
const createReadiness = () => {
  let current = Promise.withResolvers<boolean>()
  let isKnown = false
  return {
    wait: () => current.promise,
    know(answers: boolean): void {
      if (isKnown) current = Promise.withResolvers()
      isKnown = true
      current.resolve(answers)
    },
    /** Callers that wait keep waiting. */
    forget(): void {
      if (isKnown) current = Promise.withResolvers()
      isKnown = false
    },
  }
}

/** The changed files, and a wait for more. */
const createChanges = () => {
  const paths = new Set<string>()
  let more = Promise.withResolvers<void>()
  let count = 0
  return {
    add(path: string): void {
      paths.add(path)
      count += 1
      more.resolve()
    },
    /** The files changed since the last `taken`, once no more follow. */
    async settled(): Promise<string[]> {
      for (let seen = -1; seen !== count; ) {
        seen = count
        await pause(quietMs)
      }
      more = Promise.withResolvers()
      return [...paths]
    },
    taken(some: readonly string[]): void {
      for (const path of some) paths.delete(path)
    },
    wake: () => more.resolve(),
    next: () => more.promise,
  }
}

export const runDevServer = ({ start, go, between, say }: DevServerParts): DevServer => {
  const changes = createChanges()
  const readiness = createReadiness()
  let running: ChildProcess | null = null
  let spare: ChildProcess | null = start()
  let isStopping = false
  let isFirst = true

  /** The process, loaded; null if it cannot be, or if its sources have changed meanwhile. */
  const load = async (): Promise<ChildProcess | null> => {
    const child = spare === null || hasEnded(spare) ? start() : spare
    spare = null
    child.send('load')
    const outcome = await Promise.race([said(child, 'loaded'), endOf(child), changes.next()])
    if (outcome === true) return child
    if (outcome === undefined || isStopping) {
      await end(child, replacedMs)
      return null
    }
    say(`These sources cannot be loaded (${outcome}): ${running === null ? 'no server runs' : 'the last ones run on'}.`)
    if (running === null) readiness.know(false)
    spare = start()
    await changes.next()
    return null
  }
  const replace = async (child: ChildProcess, changed: readonly string[], sinceMs: number): Promise<void> => {
    readiness.forget()
    if (running !== null) await end(running, replacedMs)
    if (isStopping) return end(child, replacedMs)
    await between(changed)
    running = child
    void said(child, 'ready').then(() => {
      readiness.know(true)
      const seconds = ((performance.now() - sinceMs) / 1000).toFixed(1)
      if (!isFirst) say(`Started again in ${seconds} s: ${changed.join(', ')}`)
      isFirst = false
      if (!isStopping) spare ??= start()
    })
    child.send({ ...go, consoleUrl: isFirst ? go.consoleUrl : null } satisfies Go)
  }
  const serve = async (): Promise<void> => {
    while (!isStopping) {
      const changed = await changes.settled()
      if (isStopping) return
      const sinceMs = performance.now()
      if (running === null) readiness.forget()
      const child = await load()
      if (child === null) continue
      changes.taken(changed)
      await replace(child, changed, sinceMs)
      const outcome = await Promise.race([endOf(child), changes.next()])
      if (outcome === undefined || isStopping) continue
      running = null
      readiness.know(false)
      say(`The server has ended (${outcome}): it starts again after the next change.`)
      await changes.next()
    }
  }
  const serving = serve()
  return {
    changed: changes.add,
    isReady: readiness.wait,
    async stop() {
      isStopping = true
      changes.wake()
      await serving
      if (spare !== null) await end(spare, replacedMs)
      if (running === null) return
      // A process that is starting a router or a database must know it when it ends.
      await Promise.race([readiness.wait(), endOf(running), pause(stoppedMs, undefined, { ref: false })])
      await end(running, stoppedMs)
    },
  }
}
