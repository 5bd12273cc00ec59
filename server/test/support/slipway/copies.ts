/**
 * Copies of a data directory, made and put back by `cp`, and what a server says of a cluster
 * whose database is older than what it finds there.
 */
import assert from 'node:assert/strict'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { exec } from '../../../src/lib/exec.ts'
import { until } from '../until.ts'
import { type Json, prepareSlipway, type Slipway, type SlipwayOptions } from './slipway.ts'

const program = (name: string) => new URL(`../../../src/programs/${name}.ts`, import.meta.url).pathname

/** Its embedded database stays in its data directory: the database's user reaches it there. */
export const prepareCopied = async (options: SlipwayOptions = {}): Promise<Slipway> => {
  const slipway = await prepareSlipway(options)
  chmodSync(slipway.dataDir, 0o711)
  return slipway
}

/** What an `npm run` of a data directory says. */
export const runOn = (slipway: Slipway, what: string, ...words: string[]): Promise<string> =>
  runWith(slipway, {}, what, ...words)

/** The same with further settings. */
export const runWith = async (
  { dataDir, routerPort }: Slipway,
  settings: Record<string, string>,
  what: string,
  ...words: string[]
): Promise<string> => {
  const { code, stdout, stderr } = await exec(process.execPath, [program(what), ...words], {
    env: {
      PATH: process.env.PATH ?? '',
      HOME: process.env.HOME ?? '/root',
      SLIPWAY_DATA_DIR: dataDir,
      SLIPWAY_ROUTER_PORT: String(routerPort),
      ...settings,
    },
    timeoutMs: 60_000,
  })
  assert.equal(code, 0, stdout + stderr)
  return stdout
}

export const copyFolder = async (from: string, to: string): Promise<void> => {
  rmSync(to, { recursive: true, force: true })
  const { code, stderr } = await exec('cp', ['-aL', from, to], { env: { PATH: process.env.PATH ?? '' } })
  assert.equal(code, 0, stderr)
}

/** A folder for a copy, which ends with the test file. */
export const newCopyPlace = (): string => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-copies-'))
  chmodSync(folder, 0o711)
  after(() => rmSync(folder, { recursive: true, force: true }))
  return join(folder, 'copy')
}

/** Copies the data directory of a server that stops for that, and starts again. */
export const makeCopy = async (slipway: Slipway, to: string): Promise<void> => {
  await runOn(slipway, 'stop')
  await copyFolder(slipway.dataDir, to)
  await slipway.start()
}

export const putBack = async (slipway: Slipway, from: string): Promise<void> => {
  await runOn(slipway, 'stop')
  await copyFolder(from, slipway.dataDir)
  await slipway.start()
}

export const readOrphans = async (slipway: Slipway, clusterId: string): Promise<Json> => {
  const { status, body } = await slipway.api('GET', `/cluster/${clusterId}/orphans`)
  assert.equal(status, 200, JSON.stringify(body))
  return body
}

/** `KIND id`, in the order of the list. */
export const namesIn = ({ results }: Json): string[] => results.map(({ id, kind }: Json) => `${kind} ${id}`)

/** The conflict and the orphans, once both are reported. */
export const untilHeld = (slipway: Slipway, clusterId: string): Promise<Json> =>
  until(
    async () => {
      const found = await readOrphans(slipway, clusterId)
      return found.conflict !== null && found.results.length > 0 ? found : null
    },
    { timeoutMs: 60_000, what: 'the conflict to be reported' },
  )

/** Nothing is deployed, and all responses say why. `path`: of a service that the database knows. */
export const saysHeld = async (slipway: Slipway, path: string): Promise<void> => {
  const refused = await slipway.api('POST', `${path}/deploy`, {})
  assert.deepEqual([refused.status, refused.body.code], [409, 'cluster_conflict'], JSON.stringify(refused.body))
  await until(async () => ((await (await fetch(`${slipway.url}/readyz`)).json()) as Json).cluster_conflicts === 1, {
    what: 'the conflict in /readyz',
  })
  assert.match(slipway.output(), /Nothing is changed on this cluster until an operator decides/)
}

export const choose = async (slipway: Slipway, clusterId: string, action: string): Promise<Json> => {
  const answer = await slipway.api('POST', `/cluster/${clusterId}/conflict`, { action, confirm: true })
  assert.equal(answer.status, 200, JSON.stringify(answer.body))
  return answer.body
}
