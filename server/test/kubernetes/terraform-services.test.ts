/**
 * Terraform services on a real cluster: plan, apply, a kill -9 of the server in the middle of an apply, a pod that is
 * taken away meanwhile, cancel, destroy. The tool is the stand-in of the tests, which has Terraform's command line; its
 * image is built here and pulled by the node from a registry with a login.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { after, test } from 'node:test'
import { accessManifest } from '../../src/runtimes/kubernetes/rights.ts'
import { withDatabase } from '../support/docker/leftovers.ts'
import { login, registryIsMissing, startRegistry } from '../support/docker/registry.ts'
import type { Json } from '../support/slipway/slipway.ts'
import { deploymentLog, isSettled } from '../support/slipway/story.ts'
import { withSlipway } from '../support/slipway/with-slipway.ts'
import { until } from '../support/until.ts'
import { leadTo, outsideAddress } from './cluster/registry.ts'
import { grantAccess, openCluster, ownNode, revokeAccess } from './cluster/scene.ts'

const standIn = new URL('../terraform-tool/tofu', import.meta.url).pathname
const skip =
  registryIsMissing ||
  (ownNode === undefined && 'it needs the cluster of the tests, whose node pulls from a registry here')
const patience = { timeoutMs: 120_000 }
const token = `token-${randomBytes(8).toString('hex')}`

/** `quick` is made at once, `slow` while the test does something. */
const moduleOf = (word: string, seconds: number): string => `variable "token" {
  type      = string
  sensitive = true
}
resource "terraform_data" "quick_${word}" {
  input = "${word}"
}
resource "terraform_data" "slow_${word}" {
  input = "slow"
  provisioner "local-exec" {
    command = "sleep ${seconds}"
  }
}
output "word" {
  value = terraform_data.quick_${word}.output
}
output "token" {
  value     = var.token
  sensitive = true
}
`

test('a terraform service runs on a cluster, and neither a killed server nor a deleted pod loses its state', {
  skip,
}, async () => {
  const registry = await startRegistry({ address: outsideAddress() })
  // Before the engine is let go.
  after(() => registry.close())
  const { slipway, git } = await withSlipway({
    env: { SLIPWAY_OUTBOUND_ALLOW: 'loopback,198.18.0.0/15', SLIPWAY_TOFU: standIn },
  })
  leadTo(registry.host, registry.url)
  const admin = await openCluster()
  const kubeconfig = await grantAccess(admin, accessManifest.items)
  after(async () => {
    await revokeAccess(admin)
    admin.close()
  })
  const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
    const answer = await slipway.api(method, path, body)
    assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
    return answer.body
  }
  const base = `/organization/${(await send('GET', '/organization')).id}`
  const { id: credentials } = await send('POST', `${base}/onPremise/credentials`, { name: 'kubernetes', kubeconfig })
  const clusterBody = {
    ...{ name: 'kubernetes', cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'here' },
    cloud_provider_credentials: { credentials: { id: credentials } },
  }
  const cluster = await send('POST', `${base}/cluster`, clusterBody)
  const project = await send('POST', `${base}/project`, { name: 'infrastructure' })
  const place = { name: 'production', cluster: cluster.id }
  const { id: environmentId } = await send('POST', `/project/${project.id}/environment`, place)
  const namespace = `slipway-${environmentId}`
  await git.createRepository('infra')
  await git.commit('infra', { 'live/main.tf': moduleOf('one', 6) }, 'one')
  const { id } = await send('POST', `/environment/${environmentId}/terraform`, {
    ...{ name: 'infra', description: '', engine: 'OPEN_TOFU', backend: { kubernetes: {} } },
    terraform_files_source: { git_repository: { url: git.url('infra'), branch: 'main', root_path: '/live' } },
    terraform_variables_source: { tf_var_file_paths: [], tf_vars: [{ key: 'token', value: token, secret: true }] },
    provider_version: { explicit_version: '1.9.0' },
    job_resources: { cpu_milli: 500, ram_mib: 128, gpu: 0, storage_gib: 1 },
  })
  const refused = await slipway.api('POST', `/terraform/${id}/deploy`, {})
  assert.deepEqual([refused.status, /has no container registry/.test(refused.body.message)], [400, true])
  const { id: registryId } = await send('POST', `${base}/containerRegistry`, {
    ...{ name: 'images', kind: 'GENERIC_CR', url: `${registry.url}/team`, config: login },
  })
  await send('PUT', `${base}/cluster/${cluster.id}`, { ...clusterBody, container_registry_id: registryId })

  const log = () => deploymentLog(slipway, environmentId)
  const deploy = (body: object = {}) => send('POST', `/terraform/${id}/deploy`, body)
  const ended = async (): Promise<string> =>
    until(
      async () => {
        const { terraforms } = await send('GET', `/environment/${environmentId}/statuses`)
        const state: string = terraforms.find((each: Json) => each.id === id)?.state ?? 'DELETED'
        return isSettled(state) || state === 'DELETED' ? state : null
      },
      { ...patience, what: 'the end of the run' },
    )
  const run = async (body?: object): Promise<string> => {
    await deploy(body)
    return ended()
  }
  const says = (text: RegExp) => until(async () => text.test(await log()), { ...patience, what: String(text) })
  const listOf = async (kind: string): Promise<Json[]> => {
    const group = kind === 'jobs' ? 'apis/batch' : 'api'
    return (await admin.get(`/${group}/v1/namespaces/${namespace}/${kind}`)).items
  }
  const stateRow = () =>
    withDatabase(slipway.dataDir, async (database) => {
      const sql = 'select serial::int, sealed is not null as "isKept", held_by as held from task_state where id = $1'
      const [row] = await database.query<{ serial: number; isKept: boolean; held: string | null }>(sql, [id])
      return row ?? null
    })
  /** The variables that other services get. */
  const outputRows = () =>
    withDatabase(slipway.dataDir, (database) =>
      database.query<{ name: string; value: string | null; isSealed: boolean }>(
        'select name, value, sealed is not null as "isSealed" from service_output where service_id = $1 order by name',
        [id],
      ),
    )
  /** Nothing of a run is left in the cluster. */
  const isSwept = async (): Promise<void> => {
    const kinds = ['jobs', 'pods', 'persistentvolumeclaims', 'secrets']
    let there: string[] = []
    const none = async () => {
      there = (await Promise.all(kinds.map(listOf))).flat().map(({ metadata }) => metadata.name)
      return there.length === 0
    }
    await until(none, { ...patience, what: 'the end of what the run left' }).catch((error: Error) => {
      throw new Error(`${error.message}: ${there}`, { cause: error })
    })
  }

  assert.equal(await run({ action: 'PLAN' }), 'DEPLOYED', await log())
  assert.match(await log(), /Plan: 2 to add, 0 to change, 0 to destroy\./)
  assert.equal(await stateRow(), null)
  await isSwept()

  // The server is killed in the middle of an apply, and takes it up again.
  await deploy()
  await says(/slow_one: Creating/)
  const shown = JSON.stringify(await Promise.all(['jobs', 'pods', 'persistentvolumeclaims'].map(listOf)))
  assert.ok(!shown.includes(token) && shown.includes('slipway-module'))
  await slipway.kill('SIGKILL')
  assert.deepEqual([(await stateRow())!.isKept, (await stateRow())!.held !== null], [false, true])
  await slipway.start()
  assert.equal(await ended(), 'DEPLOYED', await log())
  assert.match(await log(), /2 added, 0 changed, 0 destroyed/)
  const first = await stateRow()
  assert.deepEqual([first!.isKept, first!.held], [true, null])
  assert.deepEqual(await outputRows(), [
    { name: 'token', value: null, isSealed: true },
    { name: 'word', value: 'one', isSealed: false },
  ])
  assert.ok(!(await log()).includes(token))
  await isSwept()
  assert.equal(await run({ action: 'FORCE_UNLOCK' }), 'DEPLOYED')
  assert.match(await log(), /The state is not locked/)

  // The server is killed, and the pod is lost with its machine meanwhile: its state is known.
  await git.commit('infra', { 'live/main.tf': moduleOf('two', 600) }, 'two')
  await deploy()
  await says(/slow_two: Creating/)
  await slipway.kill('SIGKILL')
  const [pod] = await listOf('pods')
  await admin.ask('DELETE', `/api/v1/namespaces/${namespace}/pods/${pod.metadata.name}?gracePeriodSeconds=0`)
  await until(async () => (await listOf('pods')).every(({ metadata }) => metadata.name !== pod.metadata.name), {
    ...patience,
    what: 'the pod to be gone',
  })
  await slipway.start()
  assert.equal(await ended(), 'DEPLOYMENT_ERROR', await log())
  assert.match(await log(), /The pod of the run was removed before it had ended/)
  const second = await stateRow()
  assert.deepEqual([second!.held, second!.serial > first!.serial], [null, true])
  await isSwept()

  // A cancel ends the tool in its own way.
  await deploy()
  await says(/Plan: 1 to add, 0 to change, 2 to destroy.*slow_two: Creating/s)
  await send('POST', `/environment/${environmentId}/cancelDeployment`, { force_cancel: false })
  assert.equal(await ended(), 'CANCELED', await log())
  assert.equal((await stateRow())!.held, null)
  await isSwept()

  await send('DELETE', `/terraform/${id}`)
  assert.equal(await ended(), 'DELETED', await log())
  assert.match(await log(), /Destroy complete! Resources: 3 destroyed\./)
  assert.equal(await stateRow(), null)
  await isSwept()
  await send('DELETE', `/environment/${environmentId}`)
  await until(async () => (await admin.ask('GET', `/api/v1/namespaces/${namespace}`)).status === 404, {
    ...patience,
    what: 'the namespace to be gone',
  })
})
