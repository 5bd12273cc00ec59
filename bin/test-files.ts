/**
 * bin/test-files.ts <results folder> <name> <how many at once> <files>: runs test files, those that took longest the
 * last time first, and prints what they say. Into the results folder it writes `<name>.failed` (a path a line),
 * `<name>.counts` (`pass 7`) and `<name>.times` (milliseconds, a tab, a path). Ends with 1 if a test failed.
 */
import { mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { run } from 'node:test'
import { spec } from 'node:test/reporters'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const [results = '.', name = 'tests', atOnce = '1', ...given] = process.argv.slice(2)

/** How long each file took when it last ran on this machine, in milliseconds by path. */
const durationsFile = join(root, 'node_modules/.cache/slipway/test-durations.json')

const readDurations = (): Record<string, number> => {
  try {
    return JSON.parse(readFileSync(durationsFile, 'utf8')) as Record<string, number>
  } catch {
    return {}
  }
}

/** Another run may do the same: the file is replaced whole. */
const writeDurations = (durations: Record<string, number>): void => {
  mkdirSync(dirname(durationsFile), { recursive: true })
  writeFileSync(`${durationsFile}.${process.pid}`, JSON.stringify(durations))
  renameSync(`${durationsFile}.${process.pid}`, durationsFile)
}

const pathOf = (file: string): string => relative(root, file.startsWith('file:') ? fileURLToPath(file) : resolve(file))

const durations = readDurations()
/** Of a file that has never run, its size has to do: a kilobyte counts as a second. */
const expected = (file: string): number => durations[pathOf(file)] ?? statSync(file).size
const files = given.map((file) => resolve(file)).sort((a, b) => expected(b) - expected(a))

const failed = new Set<string>()
const counts: Record<string, number> = { pass: 0, fail: 0, cancelled: 0, skipped: 0 }
const times: [string, number][] = []

const events = run({
  files,
  concurrency: Number(atOnce),
  timeout: 300_000,
  execArgv: [`--import=${join(root, 'server/test/support/deadline.ts')}`],
})
// A file that ends without a result is itself the failed test.
events.on('test:fail', (data) => failed.add(pathOf(data.file ?? data.name)))
events.on('test:summary', (data) => {
  // The types have forgotten one of them.
  const { passed, failed: failures, cancelled, skipped } = data.counts as typeof data.counts & { failed: number }
  if (data.file === undefined) Object.assign(counts, { pass: passed, fail: failures, cancelled, skipped })
  else times.push([pathOf(data.file), Math.round(data.duration_ms)])
})
const output = events.compose(spec)
output.pipe(process.stdout)
await new Promise((done) => output.once('end', done))

const write = (kind: string, lines: string[]): void =>
  writeFileSync(join(results, `${name}.${kind}`), lines.map((line) => `${line}\n`).join(''))
write('failed', [...failed])
write(
  'counts',
  Object.entries(counts).map(([word, count]) => `${word} ${count}`),
)
write(
  'times',
  times.map(([file, ms]) => `${ms}\t${file}`),
)
writeDurations({ ...readDurations(), ...Object.fromEntries(times) })
process.exitCode = failed.size + (counts.fail ?? 0) + (counts.cancelled ?? 0) > 0 ? 1 : 0
