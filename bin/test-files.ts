/**
 * bin/test-files.ts <results folder> <name> <one | many> <files>: runs test files, one or many at a time, and prints their
 * output. Into the results folder it writes `<name>.failed` (a path a line), `<name>.counts` (`pass 7`) and
 * `<name>.times` (milliseconds, a tab, a path). Ends with 1 if a test failed.
 *
 * Many: those that mostly wait run beside those that compute, and of each sort the one that took longest the last time
 * comes first; those that need the machine alone come last, one after another.
 */
import { mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { availableParallelism, cpus, homedir } from 'node:os'
import { dirname, join, relative, resolve } from 'node:path'
import { Transform } from 'node:stream'
import { run } from 'node:test'
import { spec } from 'node:test/reporters'
import { fileURLToPath } from 'node:url'
import { type Lane, laneOf } from './test-plan.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const [results = '.', name = 'tests', atOnce = 'one', ...given] = process.argv.slice(2)

const processors = availableParallelism()
/** How many run at a time: of each sort, and in all. Some always wait. */
const most: Record<Lane, number> = { heavy: 3, quick: processors + 1, alone: 1 }
const mostInAll = processors + 3

/** A file that hangs ends itself before (server/test/support/deadline.ts), unless it never comes to that. */
const longestMs = (process.env.SLIPWAY_TEST_ALL === '1' ? 65 : 12) * 60_000

/** The duration of each file's last run on this machine, in milliseconds by path; for all checkouts. */
const cache = process.env.XDG_CACHE_HOME || join(homedir(), '.cache')
const durationsFile = join(cache, 'slipway-test/durations.json')

const readDurations = (): Record<string, number> => {
  try {
    return JSON.parse(readFileSync(durationsFile, 'utf8')) as Record<string, number>
  } catch {
    return {}
  }
}

/** Another run may do the same: the file is replaced atomically. */
const writeDurations = (durations: Record<string, number>): void => {
  mkdirSync(dirname(durationsFile), { recursive: true })
  writeFileSync(`${durationsFile}.${process.pid}`, JSON.stringify(durations))
  renameSync(`${durationsFile}.${process.pid}`, durationsFile)
}

const durations = readDurations()

interface TestFile {
  path: string
  lane: Lane
  expectedMs: number
}

const describe = (file: string): TestFile => {
  const path = relative(root, resolve(file))
  // For a file that has never run, the size is used: a kilobyte counts as a second.
  return { path, lane: laneOf(path), expectedMs: durations[path] ?? statSync(join(root, path)).size }
}

const failed = new Set<string>()
const counts = { pass: 0, fail: 0, cancelled: 0, skipped: 0 }
const times: [path: string, ms: number][] = []

/** The counts that end the report of a file: those of all files are printed once, at the end. */
const isCount = (message: string): boolean =>
  /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) \d/.test(message)

const withoutCounts = () =>
  new Transform({
    objectMode: true,
    transform(event: { type: string; data: { message?: string; nesting?: number } }, _, done) {
      const { message = '', nesting } = event.data
      done(null, event.type === 'test:diagnostic' && nesting === 0 && isCount(message) ? undefined : event)
    },
  })

/** In lanes, what it says is printed in one piece when it has ended. */
const runFile = async ({ path }: TestFile, isBeside: boolean): Promise<void> => {
  const began = performance.now()
  // Beside others it may take longer until what a test waits for has come.
  process.env.SLIPWAY_TEST_PATIENCE = isBeside ? '3' : '1'
  const events = run({
    files: [join(root, path)],
    concurrency: 1,
    timeout: longestMs,
    execArgv: [`--import=${join(root, 'server/test/support/deadline.ts')}`],
  })
  // A file that ends without a result counts as a failed test.
  events.on('test:fail', () => failed.add(path))
  events.on('test:summary', ({ file, counts: found }) => {
    if (file !== undefined) return
    // The types lack one of them.
    const { passed, failed: failures, cancelled, skipped } = found as typeof found & { failed: number }
    counts.pass += passed
    counts.fail += failures
    counts.cancelled += cancelled
    counts.skipped += skipped
  })
  let said = ''
  const output = events.compose(withoutCounts()).compose(spec)
  output.setEncoding('utf8').on('data', (text: string) => {
    if (isBeside) said += text
    else process.stdout.write(text)
  })
  await new Promise((done) => output.once('end', done))
  const ms = Math.round(performance.now() - began)
  times.push([path, ms])
  process.stdout.write(`${said}${failed.has(path) ? 'FAILED' : 'passed'}: ${path} (${(ms / 1000).toFixed(1)} s)\n`)
}

/** The next that may run beside those that do; undefined if none may yet, or none is left. */
const takeNext = (waiting: TestFile[], running: readonly TestFile[]): TestFile | undefined => {
  if (running.length >= mostInAll || running.some(({ lane }) => lane === 'alone')) return undefined
  const runningOf = (lane: Lane): number => running.filter((each) => each.lane === lane).length
  const mayRun = ({ lane }: TestFile): boolean =>
    lane === 'alone' ? running.length === 0 : runningOf(lane) < most[lane]
  const index = waiting.findIndex(mayRun)
  return index < 0 ? undefined : waiting.splice(index, 1)[0]
}

const order: Lane[] = ['heavy', 'quick', 'alone']

const runInLanes = async (files: TestFile[]): Promise<void> => {
  const waiting = files.toSorted((a, b) => order.indexOf(a.lane) - order.indexOf(b.lane) || b.expectedMs - a.expectedMs)
  const running = new Map<TestFile, Promise<void>>()
  while (waiting.length + running.size > 0) {
    for (let next = takeNext(waiting, [...running.keys()]); next !== undefined; ) {
      const file = next
      running.set(
        file,
        runFile(file, file.lane !== 'alone').finally(() => running.delete(file)),
      )
      next = takeNext(waiting, [...running.keys()])
    }
    await Promise.race(running.values())
  }
}

/** What the processors have done since the machine started: of the time of all, how much they were busy. */
const processorTimes = (): { busy: number; all: number } => {
  const each = cpus().map(({ times: { user, nice, sys, irq, idle } }) => ({ busy: user + nice + sys + irq, idle }))
  const busy = each.reduce((sum, one) => sum + one.busy, 0)
  return { busy, all: each.reduce((sum, one) => sum + one.idle, busy) }
}

const before = processorTimes()
const began = performance.now()
const files = given.map(describe)
if (atOnce === 'one') for (const file of files) await runFile(file, false)
else await runInLanes(files)
const now = processorTimes()

const share = Math.round((100 * (now.busy - before.busy)) / Math.max(1, now.all - before.all))
const minutes = ((performance.now() - began) / 60_000).toFixed(1)
process.stdout.write(
  `\n${files.length} files in ${minutes} minutes; the processors were busy ${share} % of the time.\n`,
)
if (failed.size > 0) process.stdout.write(`Failed: ${[...failed].join(', ')}\n`)

const write = (kind: string, lines: string[]): void =>
  writeFileSync(join(results, `${name}.${kind}`), lines.map((line) => `${line}\n`).join(''))
write('failed', [...failed])
write(
  'counts',
  Object.entries(counts).map(([word, count]) => `${word} ${count}`),
)
write(
  'times',
  times.map(([path, ms]) => `${ms}\t${path}`),
)
try {
  writeDurations({ ...readDurations(), ...Object.fromEntries(times) })
} catch (error) {
  process.stdout.write(`The durations could not be kept for the next run: ${String(error)}\n`)
}
process.exitCode = failed.size + counts.fail + counts.cancelled > 0 ? 1 : 0
