/**
 * `npm run test:faults [-- F3 F9]`: injects the faults of the table one after another, prints a line a case and at the
 * end `N passed, N failed`; the exit code is 0 only when none failed.
 */
import { engine } from '../support/docker/docker.ts'
import { openSlipways } from '../support/slipway/slipway.ts'
import type { Fault } from './fault.ts'
import { faults } from './index.ts'

const say = (line: string): Promise<void> =>
  new Promise((resolve) => void process.stdout.write(`${line}\n`, () => resolve()))

/** Rejects when the time is up or an error was not caught; `run` may continue after that. */
const watched = async (fault: Fault): Promise<string> => {
  const { promise, reject } = Promise.withResolvers<never>()
  const deadlineMs = fault.deadlineMs ?? 120_000
  const timer = setTimeout(() => reject(new Error(`was not through within ${deadlineMs / 1000} s`)), deadlineMs)
  const fail = (error: unknown) => reject(error)
  process.on('unhandledRejection', fail).on('uncaughtException', fail)
  try {
    return await Promise.race([fault.run(), promise])
  } finally {
    clearTimeout(timer)
    process.off('unhandledRejection', fail).off('uncaughtException', fail)
  }
}

/** A case removes what it started: what is still there is removed here, and said. */
const clearUp = async (): Promise<void> => {
  const open = [...openSlipways]
  await Promise.all(open.map((slipway) => slipway.remove()))
  if (open.length > 0) throw new Error('a Slipway was left running')
}

const wordsOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** True when the fault did no harm. */
const inject = async (fault: Fault): Promise<boolean> => {
  const from = performance.now()
  const problems: string[] = []
  const note = (error: unknown) => void problems.push(wordsOf(error))
  const figures = await watched(fault).catch(note)
  await clearUp().catch((error: unknown) => (problems.length === 0 ? note(error) : undefined))
  const seconds = ((performance.now() - from) / 1000).toFixed(1)
  const verdict = problems.length === 0 ? 'ok  ' : 'FAIL'
  await say(`${verdict} ${fault.id.padEnd(3)} ${fault.title}: ${problems.join('; ') || figures} (${seconds} s)`)
  return problems.length === 0
}

const chosen = (ids: readonly string[]): readonly Fault[] => {
  const unknown = ids.filter((id) => !faults.some((fault) => fault.id === id))
  if (unknown.length > 0) throw new Error(`no such fault: ${unknown.join(', ')}`)
  return ids.length === 0 ? faults : faults.filter(({ id }) => ids.includes(id))
}

// A run that is ended early cleans up everything that it started.
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => void clearUp().finally(() => process.exit(130)))

let [passed, failed] = [0, 0]
for (const fault of chosen(process.argv.slice(2))) {
  if (await inject(fault)) passed += 1
  else failed += 1
}
await engine.close()
await say(`${passed} passed, ${failed} failed`)
// A case that was given up may still hold the process.
process.exit(failed === 0 && passed > 0 ? 0 : 1)
