/**
 * Terraform services on a real engine: plan, apply, a change, outputs that an application uses, destroy; one run at a
 * time; a kill -9 in the middle of an apply. The tool is the machine's own Terraform, or the one that SLIPWAY_TERRAFORM
 * names; where there is none, a stand-in that honors the same contract (terraform-tool/tofu).
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { after, before, describe, test } from 'node:test'
import { findTool } from '../src/builds/tools.ts'
import { busyboxImage, ensureBusybox } from './support/docker/busybox-image.ts'
import { containersOf, engine } from './support/docker/docker.ts'
import { withDatabase } from './support/docker/leftovers.ts'
import { buildImage } from './support/docker/program-image.ts'
import { login, type Registry, registryIsMissing, startRegistry, untag } from './support/docker/registry.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import {
  createApplication,
  createPlace,
  deploy,
  deploymentLog,
  hostOf,
  isSettled,
  type Place,
  settle,
  visit,
} from './support/slipway/story.ts'
import { until } from './support/until.ts'

const standIn = new URL('./terraform-tool/tofu', import.meta.url).pathname
const real = (await findTool('terraform', { terraform: process.env.SLIPWAY_TERRAFORM })) ?? undefined
const tool = real === undefined ? 'OPEN_TOFU' : 'TERRAFORM'
/** The server must not find the other tool. */
const pathWithout = (name: string): string => {
  const folders = (process.env.PATH ?? '').split(delimiter)
  return folders.filter((folder) => !existsSync(join(folder, name))).join(delimiter)
}
const env: Record<string, string> =
  real === undefined
    ? { SLIPWAY_TOFU: standIn, PATH: pathWithout('terraform') }
    : { SLIPWAY_TERRAFORM: real, PATH: pathWithout('tofu') }
const token = `token-${randomBytes(8).toString('hex')}`

let slipway: Slipway
let git: GitServer
let place: Place

before(async () => {
  await ensureBusybox()
  git = await startGitServer()
  slipway = await prepareSlipway({ env })
  await slipway.start()
  place = await createPlace(slipway)
})

after(async () => {
  await slipway?.remove()
  await git?.close()
  await engine.close()
})

const main = `variable "word" {
  type = string
}
variable "token" {
  type      = string
  sensitive = true
}
resource "terraform_data" "one" {
  input = var.word
}
output "word" {
  value = terraform_data.one.output
}
output "token" {
  value     = var.token
  sensitive = true
}
`

const slow = `resource "terraform_data" "quick" {
  input = "quick"
}
resource "terraform_data" "slow" {
  input = "\${terraform_data.quick.output}-slow"
  provisioner "local-exec" {
    command = "sleep 6"
  }
}
output "slow" {
  value = terraform_data.slow.output
}
`

/** Writes the word on its page, so that a visit shows which one it got. */
const reader = {
  Dockerfile: [
    `FROM ${busyboxImage}`,
    'CMD ["sh", "-c", "mkdir -p /www; echo $WORD $TOKEN > /www/index.html; exec httpd -f -p 8080 -h /www"]',
    '',
  ].join('\n'),
}

const send = async (method: string, path: string, body?: unknown, status?: number): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  const isGood = status === undefined ? answer.status < 300 : answer.status === status
  assert.ok(isGood, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const createModule = async (name: string, files: Record<string, string>, more: object = {}): Promise<string> => {
  await git.createRepository(name)
  await git.commit(name, files, 'a module')
  const made = await send('POST', `/environment/${place.environmentId}/terraform`, {
    name,
    description: '',
    auto_deploy_config: { auto_deploy: false, terraform_action: 'DEFAULT' },
    terraform_files_source: { git_repository: { url: git.url(name), branch: 'main', root_path: '/' } },
    terraform_variables_source: { tf_var_file_paths: [], tf_vars: [] },
    backend: { kubernetes: {} },
    engine: tool,
    provider_version: { explicit_version: '1.4.7' },
    job_resources: { cpu_milli: 1000, ram_mib: 512, gpu: 0, storage_gib: 1 },
    ...more,
  })
  return made.id
}

const statusOf = async (id: string): Promise<Json | undefined> => {
  const { terraforms } = await send('GET', `/environment/${place.environmentId}/statuses`)
  return terraforms.find((each: Json) => each.id === id)
}

/** The status after all requested actions. */
const ended = (id: string): Promise<Json> =>
  until(
    async () => {
      const status = await statusOf(id)
      return status === undefined || isSettled(status.state) ? (status ?? { state: 'DELETED' }) : null
    },
    { timeoutMs: 90_000, what: `the end of ${id}` },
  )

const run = async (id: string, body: object = {}): Promise<Json> => {
  await send('POST', `/terraform/${id}/deploy`, body)
  return ended(id)
}

const log = () => deploymentLog(slipway, place.environmentId)

/** The output of a run's container so far. */
const containerLog = async (id: string): Promise<string> => {
  const [container] = await containersOf(id)
  const { state } = (await statusOf(id))!
  assert.ok(!/_ERROR$/.test(state), await log())
  if (container === undefined) return ''
  const stream = await engine.stream('GET', `/containers/${container.Id}/logs`, {
    query: { stdout: true, stderr: true },
  })
  return (await buffer(stream)).toString('utf8')
}

const outputKey = (id: string, name: string): string =>
  `SLIPWAY_OUTPUT_TERRAFORM_Z${id.slice(0, 8).toUpperCase()}_${name}`

/** Every row of the database, as text. */
const everyRow = (): Promise<string> =>
  withDatabase(slipway.dataDir, async (database) => {
    const tables = await database.query<{ name: string }>(
      `select table_name as name from information_schema.tables where table_schema = 'public'`,
    )
    const rows = await Promise.all(tables.map(({ name }) => database.query(`select t::text as row from "${name}" t`)))
    return JSON.stringify(rows)
  })

/** The state as the service's next run would get it. */
const stateRow = (id: string) =>
  withDatabase(slipway.dataDir, async (database) => {
    const [row] = await database.query<{ serial: number; sealed: string | null; held: string | null }>(
      'select serial::int, sealed, held_by as held from task_state where id = $1',
      [id],
    )
    return row ?? null
  })

const releasesOf = (id: string): Promise<number> =>
  withDatabase(slipway.dataDir, async (database) => {
    const [row] = await database.query<{ count: number }>(
      'select count(*)::int as count from release where service_id = $1',
      [id],
    )
    return row!.count
  })

const words = (word: string) => ({
  terraform_variables_source: {
    tf_var_file_paths: [],
    tf_vars: [
      { key: 'word', value: word, secret: false },
      { key: 'token', value: token, secret: true },
    ],
  },
})

test('a module is planned, applied, changed and destroyed; an application uses its outputs', async () => {
  const id = await createModule('module', { 'main.tf': main }, words('first'))
  const planned = await run(id, { action: 'PLAN' })
  assert.deepEqual(
    [planned.state, planned.service_deployment_status, planned.status_details.sub_action],
    ['DEPLOYED', 'NEVER_DEPLOYED', 'TERRAFORM_PLAN_ONLY'],
    await log(),
  )
  assert.match(await log(), /Plan: 1 to add, 0 to change, 0 to destroy\./)
  const [entry] = (await send('GET', `/environment/${place.environmentId}/deploymentHistoryV2`)).results
  assert.equal(entry.trigger_action, 'DEPLOY_DRY_RUN')
  assert.equal(entry.stages[0].services[0].status_details.sub_action, 'TERRAFORM_PLAN_ONLY')
  assert.deepEqual([await stateRow(id), await releasesOf(id)], [null, 0])

  const applied = await run(id)
  assert.deepEqual(
    [applied.state, applied.service_deployment_status, applied.status_details.sub_action],
    ['DEPLOYED', 'UP_TO_DATE', 'TERRAFORM_PLAN_AND_APPLY'],
    await log(),
  )
  assert.match(await log(), /1 added, 0 changed, 0 destroyed/)
  assert.deepEqual(await containersOf(id), [])

  await git.createRepository('reader')
  await git.commit('reader', reader, 'a reader')
  const application = await createApplication(slipway, place, 'reader', git.url('reader'))
  const { results } = await send('GET', `/application/${application.id}/environmentVariable`)
  const word = results.find((each: Json) => each.key === outputKey(id, 'word'))
  assert.deepEqual([word.value, word.scope, word.service_type, word.service_id], ['first', 'BUILT_IN', 'TERRAFORM', id])
  const secrets = (await send('GET', `/application/${application.id}/secret`)).results
  const secret = secrets.find((each: Json) => each.key === outputKey(id, 'token'))
  assert.ok(secret !== undefined && !JSON.stringify(results).includes(token))
  await send('POST', `/application/${application.id}/environmentVariable/${word.id}/alias`, { key: 'WORD' })
  await send('POST', `/application/${application.id}/secret/${secret.id}/alias`, { key: 'TOKEN' })
  await deploy(slipway, application.id)
  assert.equal(await settle(slipway, application.id), 'DEPLOYED', await log())
  assert.equal((await visit(slipway, hostOf(place, 'reader'))).text, `first ${token}`)

  await send('PUT', `/terraform/${id}`, words('second'))
  assert.equal((await statusOf(id))!.service_deployment_status, 'OUT_OF_DATE')
  const before = [await stateRow(id), await releasesOf(id)]
  assert.equal((await run(id, { action: 'PLAN' })).state, 'DEPLOYED')
  assert.deepEqual([await stateRow(id), await releasesOf(id)], before)
  assert.match(await log(), /Plan: 0 to add, 1 to change, 0 to destroy\./)
  assert.equal((await run(id)).state, 'DEPLOYED')
  assert.match(await log(), /0 added, 1 changed, 0 destroyed/)
  const status = await slipway.api('GET', `/application/${application.id}/status`)
  assert.equal(status.body.service_deployment_status, 'OUT_OF_DATE')
  // One deploy of all: the module's stage comes first, and the application gets its outputs.
  await send('PUT', `/terraform/${id}`, words('third'))
  await send('POST', `/environment/${place.environmentId}/deploy`)
  assert.equal((await ended(id)).state, 'DEPLOYED', await log())
  assert.equal(await settle(slipway, application.id), 'DEPLOYED', await log())
  assert.equal((await visit(slipway, hostOf(place, 'reader'))).text, `third ${token}`)

  const row = await stateRow(id)
  assert.match(row!.sealed!, /^v1\./)
  const rows = await everyRow()
  assert.ok(!rows.includes(token) && !rows.includes('terraform_data.one.output') && !rows.includes('lineage'))
  assert.ok(!(await log()).includes(token))

  await send('DELETE', `/application/${application.id}`)
  await send('DELETE', `/terraform/${id}`, undefined, 204)
  const during = await until(async () => (await statusOf(id))?.status_details.sub_action ?? 'gone', { what: 'it' })
  assert.ok(['TERRAFORM_DESTROY', 'gone'].includes(during))
  assert.equal((await ended(id)).state, 'DELETED', await log())
  assert.match(await log(), /Destroy complete! Resources: 1 destroyed\./)
  assert.equal(await stateRow(id), null)
})

test('two applies at once do not run together, and a kill -9 in the middle of one loses nothing', async () => {
  const id = await createModule('slow', { 'main.tf': slow })
  const first = await send('POST', `/terraform/${id}/deploy`)
  await until(async () => (await containersOf(id)).length === 1, { timeoutMs: 60_000, what: 'the run' })
  const second = await send('POST', `/terraform/${id}/deploy`, { git_commit_id: null })
  assert.notEqual(first.deployment_request_id, second.deployment_request_id)
  await until(async () => /slow: Creating/.test(await containerLog(id)), { timeoutMs: 60_000, what: 'the slow one' })
  const [container] = await containersOf(id)
  await slipway.kill('SIGKILL')
  const held = await stateRow(id)
  assert.deepEqual([held!.held, held!.sealed], [first.deployment_request_id, null])
  await slipway.start()
  let most = 0
  const status = await until(
    async () => {
      const all = await containersOf(id)
      most = Math.max(most, all.filter(({ State }) => State === 'running').length)
      const now = await statusOf(id)
      return isSettled(now!.state) ? now! : null
    },
    { timeoutMs: 120_000, what: 'both ends' },
  )
  assert.equal(status.state, 'DEPLOYED', await log())
  assert.equal(most, 1)
  assert.ok(container !== undefined)
  assert.match(await log(), /No changes\./)
  const { body } = await slipway.api('GET', `/environment/${place.environmentId}/logs?version=${first.execution_id}`)
  assert.match(JSON.stringify(body), /2 added, 0 changed, 0 destroyed/)
  assert.deepEqual([(await stateRow(id))!.held, await containersOf(id)], [null, []])
  await send('DELETE', `/terraform/${id}`, undefined, 204)
  assert.equal((await ended(id)).state, 'DELETED')
})

test('a cancel in the middle of an apply ends it within 15 s, and the resources made until then are known', async () => {
  const id = await createModule('canceled', { 'main.tf': slow.replace('sleep 6', 'sleep 60') })
  await send('POST', `/terraform/${id}/deploy`)
  await until(async () => (await containersOf(id)).length === 1, { timeoutMs: 60_000, what: 'the run' })
  await until(async () => /slow: Creating/.test(await containerLog(id)), { timeoutMs: 60_000, what: 'the slow one' })
  const startedMs = performance.now()
  await send('POST', `/environment/${place.environmentId}/cancelDeployment`, { force_cancel: false })
  assert.equal((await ended(id)).state, 'CANCELED')
  assert.ok(performance.now() - startedMs < 15_000)
  const row = await stateRow(id)
  assert.ok(row!.sealed !== null && row!.held === null)
  await send('DELETE', `/terraform/${id}?force_terraform_action=SKIP_DESTROY`, undefined, 204)
  assert.equal((await ended(id)).state, 'DELETED')
})

test('without its tool a deploy is refused in one sentence, and the record is kept', async () => {
  const other = tool === 'OPEN_TOFU' ? 'TERRAFORM' : 'OPEN_TOFU'
  const id = await createModule('other', { 'main.tf': main }, { ...words('x'), engine: other })
  const refused = await send('POST', `/terraform/${id}/deploy`, {}, 400)
  assert.match(
    refused.message,
    /is not installed on this server: install `(tofu|terraform)` or set SLIPWAY_(TOFU|TERRAFORM)\./,
  )
  await send('DELETE', `/terraform/${id}`, undefined, 204)
})

describe('a tool from an image', { skip: registryIsMissing }, () => {
  const other = tool === 'OPEN_TOFU' ? 'TERRAFORM' : 'OPEN_TOFU'
  let registry: Registry

  before(async () => {
    registry = await startRegistry()
    const name = other === 'OPEN_TOFU' ? 'tofu' : 'terraform'
    await buildImage('terraform-e2e:1', { [name]: readFileSync(standIn, 'utf8') }, '')
    await registry.publish('terraform-e2e:1', 'tools/engine', '1.4.7')
  })
  after(async () => {
    await registry.close()
    await untag('terraform-e2e:1')
  })

  test('the tool comes from the image that a service names, pulled only with credentials of its organization', async () => {
    const id = await createModule('imaged', { 'main.tf': main }, { ...words('imaged'), engine: other })
    await send('PUT', `/terraform/${id}/advancedSettings`, { 'build.engine_image': `${registry.host}/tools/engine` })
    assert.equal((await run(id)).state, 'BUILD_ERROR')
    assert.match(await log(), /Base image .*tools\/engine:1\.4\.7 is not available/)
    await send('POST', `/organization/${place.organizationId}/containerRegistry`, {
      name: 'tools',
      kind: 'GENERIC_CR',
      description: '',
      url: registry.url,
      config: login,
    })
    assert.equal((await run(id)).state, 'DEPLOYED', await log())
    assert.match(await log(), /1 added, 0 changed, 0 destroyed/)
    await send('DELETE', `/terraform/${id}`, undefined, 204)
    assert.equal((await ended(id)).state, 'DELETED', await log())
  })
})
