/**
 * A cluster at a cloud provider, made by the real tool if there is one: the module of this test uses only resources
 * built into the tool, and outputs the credentials of an API server of this test. Else by the stand-in of the Terraform
 * tests.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { existsSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { after, before, test } from 'node:test'
import { findTool } from '../src/builds/tools.ts'
import { ensureBusybox } from './support/docker/busybox-image.ts'
import { containersOf, engine, networksOf } from './support/docker/docker.ts'
import { withDatabase } from './support/docker/leftovers.ts'
import { onlyAtNight } from './support/nightly.ts'
import { kubeconfigOf, startCluster, type TestCluster } from './support/peers/kubernetes.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { until } from './support/until.ts'

const standIn = new URL('./terraform-tool/tofu', import.meta.url).pathname
const real = (await findTool('terraform', { terraform: process.env.SLIPWAY_TERRAFORM })) ?? undefined
const secret = `secret-${randomBytes(8).toString('hex')}`
const file = join(tmpdir(), `slipway-modules-${process.pid}.json`)

let slipway: Slipway
let kubernetes: TestCluster
let organizationId: string

const pathWithout = (name: string): string =>
  (process.env.PATH ?? '')
    .split(delimiter)
    .filter((folder) => !existsSync(join(folder, name)))
    .join(delimiter)

before(async () => {
  await ensureBusybox()
  kubernetes = await startCluster()
  const { clusters } = kubeconfigOf(kubernetes.port, kubernetes.token)
  const { server, 'certificate-authority-data': ca } = clusters[0].cluster
  const given = { host: { value: server }, ca: { value: ca }, token: { value: kubernetes.token } }
  const AWS = {
    engine: real === undefined ? 'tofu' : 'terraform',
    source: new URL('./cluster-module', import.meta.url).pathname,
    inputs: { ...given, kubernetes_version: '/kubernetes_version', stopped: '/stopped', nodes: '/max_running_nodes' },
    outputs: { host: 'host', ca: 'ca', token: 'token' },
    versions: ['1.31'],
    timeout_minutes: 5,
  }
  writeFileSync(file, JSON.stringify({ AWS }))
  const tool: Record<string, string> =
    real === undefined
      ? { SLIPWAY_TOFU: standIn, PATH: pathWithout('terraform') }
      : { SLIPWAY_TERRAFORM: real, PATH: pathWithout('tofu') }
  slipway = await prepareSlipway({ env: { ...tool, SLIPWAY_CLUSTER_MODULES: file } })
  await slipway.start()
  organizationId = (await slipway.api('GET', '/organization')).body.results[0].id
})

after(async () => {
  await slipway?.remove()
  await kubernetes?.close()
  rmSync(file, { force: true })
  await engine.close()
})

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const newCluster = async (key: string) => {
  const base = `/organization/${organizationId}`
  const login = { type: 'AWS_STATIC', access_key_id: key, secret_access_key: secret }
  const keys = await send('POST', `${base}/aws/credentials`, { name: key, ...login })
  const { id } = await send('POST', `${base}/cluster`, {
    ...{ name: `cluster of ${key}`, region: 'eu-west-3', cloud_provider: 'AWS', max_running_nodes: 2 },
    cloud_provider_credentials: { credentials: { id: keys.id }, region: 'eu-west-3' },
  })
  const path = `${base}/cluster/${id}`
  const log = async (): Promise<string> =>
    (await send('GET', `${path}/logs`)).results.map(({ message }: Json) => message.safe_message).join('\n')
  const ended = async (state: string): Promise<Json> => {
    const found = await until(
      async () => {
        const status = (await slipway.api('GET', `${path}/status`).catch(() => null))?.body
        return status?.status === state || /_ERROR$|^INVALID/.test(status?.status) ? status : null
      },
      { timeoutMs: 90_000, what: state },
    )
    assert.equal(found.status, state, `${found.error_message}\n${await log()}`)
    return found
  }
  const use = (next: string) =>
    send('PUT', `${base}/aws/credentials/${keys.id}`, { name: next, ...login, access_key_id: next })
  return { id: id as string, path, log, ended, use }
}

const isGone = (path: string) =>
  until(async () => (await slipway.api('GET', path)).status === 404, { timeoutMs: 90_000, what: 'the end of it' })

/** Every row of the database, as text. */
const everyRow = (): Promise<string> =>
  withDatabase(slipway.dataDir, async (database) => {
    const tables = await database.query<{ name: string }>(
      `select table_name as name from information_schema.tables where table_schema = 'public'`,
    )
    const rows = await Promise.all(tables.map(({ name }) => database.query(`select t::text as row from "${name}" t`)))
    return JSON.stringify(rows)
  })

test('a cluster is planned, refused by its provider, made, changed, stopped, started and destroyed, and its secrets are nowhere', async () => {
  const { id, path, log, ended, use } = await newCluster('AKIA-WRONG')
  await send('POST', `${path}/deploy?dry_run=true`)
  await ended('READY')
  assert.match(await log(), /Plan: 2 to add, 0 to change, 0 to destroy\./)
  await send('POST', `${path}/deploy`)
  assert.match((await ended('INVALID_CREDENTIALS')).error_message, /does not accept the credentials/)
  await use('AKIA-FULL')
  await send('POST', `${path}/deploy`)
  await ended('DEPLOYMENT_ERROR')
  await use('AKIA-GOOD')
  await send('POST', `${path}/deploy`)
  await ended('DEPLOYED')
  assert.match(await log(), /let in with \*+/)
  assert.match(await log(), /2 added, 0 changed, [01] destroyed/)
  const record = await send('GET', path)
  assert.deepEqual([record.version, record.deployment_status], [kubernetes.version, 'UP_TO_DATE'])

  await send('PUT', path, { max_running_nodes: 5 })
  await send('POST', `${path}/deploy`)
  await until(async () => /0 added, 1 changed, 0 destroyed/.test(await log()), {
    timeoutMs: 60_000,
    what: 'the change',
  })
  await ended('DEPLOYED')
  await send('POST', `${path}/stop`)
  await ended('STOPPED')
  await send('POST', `${path}/deploy`)
  await ended('DEPLOYED')
  const kept = `${await everyRow()} ${await log()} ${slipway.output()}`
  for (const text of [secret, kubernetes.token, 'terraform_data.cluster.output', 'lineage'])
    assert.ok(!kept.includes(text), text)
  await send('DELETE', path)
  await isGone(path)
  assert.deepEqual([await containersOf(id), await networksOf(id)], [[], []])
})

test('a kill -9 in the middle of an apply loses nothing, and the tool has run once', {
  skip: onlyAtNight,
}, async () => {
  const { id, path, log, ended } = await newCluster('AKIA-SLOW')
  await send('POST', `${path}/deploy`)
  await until(async () => /the provider is slow/.test(await log()), { timeoutMs: 90_000, what: 'the slow one' })
  const [container] = await containersOf(id)
  await slipway.kill('SIGKILL')
  await slipway.start()
  assert.deepEqual(
    (await containersOf(id)).map(({ Id }) => Id),
    [container!.Id],
  )
  await ended('DEPLOYED')
  assert.equal((await log()).match(/the provider is slow/g)!.length, 1)
  await send('DELETE', path)
  await isGone(path)
  assert.deepEqual([await containersOf(id), await networksOf(id)], [[], []])
})
