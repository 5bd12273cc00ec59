/**
 * `npm run bench [-- --only 1a,2b] [--rounds 5] [--floors]`: prints each figure beside its floor; a whole run writes
 * bench/results.json. `--floors` leaves our side out. Leaves no process, container or folder behind, whether it ends, fails or is interrupted.
 */
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import os from 'node:os'
import { parseArgs } from 'node:util'
import { type Bench, openBench } from './bench.ts'
import { type Figure, measureFigure, type Row } from './figure.ts'
import { figures } from './figures/index.ts'

const { values: options } = parseArgs({
  options: { only: { type: 'string' }, rounds: { type: 'string', default: '5' }, floors: { type: 'boolean' } },
})

const chosen = (): Figure<Bench>[] => {
  const wanted = options.only?.split(',').map((id) => id.trim())
  const unknown = wanted?.filter((id) => !figures.some((figure) => figure.id === id)) ?? []
  if (unknown.length > 0) throw new Error(`no figure ${unknown.join(', ')}; there are ${figures.map(({ id }) => id)}`)
  const picked = figures.filter(({ id }) => wanted === undefined || wanted.includes(id))
  return options.floors === true ? picked.map((figure) => ({ ...figure, ours: null })) : picked
}

const number = (value: number | null): string => (value === null ? '-' : String(value))

const verdict = ({ met, goal }: Row): string => {
  if (met === null) return goal === 'stated only' ? '' : 'not measured'
  return met ? 'met' : 'MISSED'
}

const widths = [12, 38, 10, 10, 8, 12, 14, 12]
const line = (cells: string[]): string =>
  cells
    .map((cell, at) => cell.padEnd(widths[at] ?? 0))
    .join(' ')
    .trimEnd()

const printRows = (rows: Row[]): void => {
  for (const row of rows) {
    const ratio = row.ratio === null ? '-' : row.ratio.toFixed(2)
    console.log(line([row.id, row.what, number(row.floor), number(row.ours), ratio, row.goal, verdict(row), row.unit]))
  }
  for (const reason of new Set(rows.flatMap(({ reasons }) => reasons ?? []))) console.log(`    ${reason}`)
}

const commit = (): string => {
  try {
    return execFileSync('git', ['rev-parse', 'HEAD'], {
      encoding: 'utf8',
      cwd: import.meta.dirname,
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim()
  } catch {
    return 'unknown'
  }
}

const machine = async (bench: Bench) => ({
  cpu: os.cpus()[0]?.model ?? 'unknown',
  cores: os.cpus().length,
  memory_mb: Math.round(os.totalmem() / 1e6),
  kernel: os.release(),
  node: process.version,
  postgres: (await bench.postgres()).version,
  docker: await bench.engine.call<{ Version: string }>('GET', '/version').then(
    ({ Version }) => Version,
    () => 'none',
  ),
  load_average: os.loadavg()[0],
})

const writeResults = async (bench: Bench, rows: Row[], seconds: number): Promise<void> => {
  const results = {
    date: new Date().toISOString(),
    commit: commit(),
    rounds: Number(options.rounds),
    seconds: Math.round(seconds),
    machine: await machine(bench),
    rows,
  }
  writeFileSync(new URL('./results.json', import.meta.url), `${JSON.stringify(results, null, 2)}\n`)
}

const run = async (bench: Bench): Promise<void> => {
  const start = performance.now()
  console.log(line(['id', 'work', 'floor', 'ours', 'ratio', 'goal', '', 'unit']))
  const rows: Row[] = []
  for (const figure of chosen()) {
    const measured = await measureFigure(figure, bench, Number(options.rounds), interrupted.signal)
    printRows(measured)
    rows.push(...measured)
  }
  const seconds = (performance.now() - start) / 1000
  console.log(
    `${rows.filter(({ met }) => met === true).length} goals met, ` +
      `${rows.filter(({ met }) => met === false).length} missed, in ${Math.round(seconds)} s`,
  )
  if (options.only !== undefined || options.floors === true)
    console.log('a partial run: bench/results.json is left as it was')
  else await writeResults(bench, rows, seconds)
}

/** The first signal ends the run after the round under way and cleans up; the second ends it as it is. */
const interrupted = new AbortController()
const interrupt = () => {
  if (interrupted.signal.aborted) process.exit(130)
  console.error('ending after this round; once more to leave everything as it is')
  interrupted.abort(new Error('interrupted'))
}
process.on('SIGINT', interrupt)
process.on('SIGTERM', interrupt)

const bench = openBench()
try {
  await run(bench)
} catch (error) {
  if (!interrupted.signal.aborted) throw error
  process.exitCode = 130
} finally {
  await bench.close()
}
