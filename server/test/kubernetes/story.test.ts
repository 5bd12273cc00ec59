/** One whole environment on a real cluster, through the API: from its first deployment until nothing of it is left. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { findTool } from '../../src/builds/tools.ts'
import { createHelmTool } from '../../src/runtimes/kubernetes/helm/tool.ts'
import type { Json } from '../support/api.ts'
import { isSettled } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import { chartArchive, shopFiles } from './cluster/chart.ts'
import {
  type Place,
  publicPort,
  servingContainer,
  servingScript,
  needsOwnNode as skip,
  startPlace,
} from './cluster/place.ts'
import { privateLogin } from './cluster/registry.ts'

const patience = { timeoutMs: 60_000 }
const folder = mkdtempSync(join(tmpdir(), 'slipway-story-'))
const helm = createHelmTool(() => findTool('helm', {}), join(folder, 'helm'))
const place = (skip === false ? await startPlace(undefined, helm) : {}) as Place
after(() => rmSync(folder, { recursive: true, force: true }))
const { call, organizationId, admin, registry, registryId, clusterId, ownerId, must } = place
const base = `/organization/${organizationId}`

const kinds = [
  ...['api/v1/pods', 'api/v1/services', 'api/v1/secrets', 'api/v1/persistentvolumeclaims', 'api/v1/namespaces'],
  ...['apis/apps/v1/deployments', 'apis/apps/v1/replicasets', 'apis/apps/v1/statefulsets', 'apis/batch/v1/jobs'],
  ...['apis/networking.k8s.io/v1/ingresses', 'apis/networking.k8s.io/v1/networkpolicies'],
  'apis/autoscaling/v2/horizontalpodautoscalers',
]
/** Everything of ours that the cluster has, but what is being removed. */
const left = async (): Promise<string[]> => {
  const lists = await Promise.all(
    kinds.map(async (path) => {
      const { items } = await admin.get(`/${path}?labelSelector=slipway.owner=${ownerId}`)
      return items.map(({ metadata }: Json) => `${path} ${metadata.namespace ?? ''} ${metadata.name}`)
    }),
  )
  return lists.flat()
}

const statesOf = async (environmentId: string): Promise<string[]> => {
  const { environment, ...kindsOf } = await must('GET', `/environment/${environmentId}/statuses`)
  const services = Object.values(kindsOf).flatMap((list) => (Array.isArray(list) ? (list as Json[]) : []))
  return [environment.state, ...services.map(({ state }) => state)]
}
const settles = async (environmentId: string, wanted: string): Promise<void> => {
  let states: string[] = []
  const isRest = async () => {
    states = await statesOf(environmentId)
    return states.every((state) => isSettled(state))
  }
  await until(isRest, { ...patience, what: `the environment to be ${wanted}` }).catch(() => {})
  const logs = (await call('GET', `/environment/${environmentId}/logs`)).body as Json[]
  const errors = JSON.stringify(logs.filter(({ error }) => error !== null)).slice(-3000)
  assert.deepEqual(new Set(states), new Set([wanted]), errors)
}
const act = async (environmentId: string, action: string, wanted: string): Promise<void> => {
  await must('POST', `/environment/${environmentId}/${action}`)
  await settles(environmentId, wanted)
}

const ports = [publicPort(8080, 'HTTP'), publicPort(8081, 'TCP')]
const body = (name: string, more: Json = {}): Json => servingContainer(place, name, { ports, ...more })
const jobBody = (name: string, schedule: Json): Json => ({
  ...{ name, cpu: 50, memory: 32, healthchecks: {}, schedule },
  source: { image: { registry_id: registryId, image_name: 'shop/app', tag: '1' } },
})

/** A repository with one chart, without host names; its URL. */
const startCharts = async (): Promise<string> => {
  const deployment = { 'templates/others.yaml': 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndata: {}\n' }
  const archive = await chartArchive('shop', shopFiles('1.0.0', deployment))
  const index = 'apiVersion: v1\nentries:\n  shop:\n  - version: 1.0.0\n    urls:\n    - shop-1.0.0.tgz\n'
  const server = createServer(({ url }, answer) => answer.end(url === '/shop-1.0.0.tgz' ? archive : index))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  after(() => server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const pageOf = async (id: string): Promise<string> => {
  const { results } = await must('GET', `/container/${id}/link`)
  const url: string | undefined = results.find((one: Json) => one.url.startsWith('tcp:'))?.url
  if (url === undefined || !/\d+\.\d+\.\d+\.\d+:/.test(url)) return ''
  return fetch(url.replace('tcp:', 'http:'), { headers: { connection: 'close' } }).then(
    async (answer) => (await answer.text()).trim(),
    () => '',
  )
}
const shows = (id: string, page: string): Promise<unknown> =>
  until(async () => (await pageOf(id)) === page, { ...patience, what: `${id} to show ${page}` })

test('an environment with a database, jobs, a private image and a chart lives its whole life and leaves nothing', {
  skip,
}, async () => {
  const project = await must('POST', `${base}/project`, { name: 'shop' })
  const environment = await must('POST', `/project/${project.id}/environment`, {
    name: 'production',
    cluster: clusterId,
  })
  const id: string = environment.id
  await must('POST', `/environment/${id}/environmentVariable`, { key: 'PAGE', value: 'first' })
  const cache = { name: 'cache', type: 'REDIS', version: '7', mode: 'CONTAINER', storage: 10, cpu: 50, memory: 64 }
  await must('POST', `/environment/${id}/database`, cache)
  const output = 'echo \'{"GREETING":{"value":"hello"}}\' > /slipway-output/slipway-output.json; echo migrated'
  const migrate = await must(
    'POST',
    `/environment/${id}/job`,
    jobBody('migrate', { on_start: { entrypoint: 'sh -c', arguments: [output] } }),
  )
  const clock = { cronjob: { scheduled_at: '0 3 * * *', entrypoint: 'sh -c', arguments: ['echo the clock'] } }
  const cron = await must('POST', `/environment/${id}/job`, jobBody('nightly', clock))
  const login = { name: 'private images', kind: 'GENERIC_CR', url: registry.url.origin, config: privateLogin }
  const { id: privateId } = await must('POST', `${base}/containerRegistry`, login)
  const ofPrivate = { registry_id: privateId, image_name: 'private/app' }
  const one = await must('POST', `/environment/${id}/container`, body('api', ofPrivate))
  const charts = { name: 'charts', kind: 'HTTPS', url: await startCharts(), skip_tls_verification: false, config: {} }
  const { id: repository } = await must('POST', `${base}/helmRepository`, charts)
  const chart = await must('POST', `/environment/${id}/helm`, {
    ...{ name: 'shop', auto_deploy: false, arguments: [], timeout_sec: 60 },
    source: { helm_repository: { repository, chart_name: 'shop', chart_version: '1.0.0' } },
  })
  const two = await must(
    'POST',
    `/environment/${id}/container`,
    body('web', { min_running_instances: 2, max_running_instances: 2 }),
  )
  await act(id, 'deploy', 'DEPLOYED')
  await shows(one.id, 'first')
  await shows(two.id, 'first')
  assert.equal((await must('GET', `/helm/${chart.id}/status`)).state, 'DEPLOYED')
  const variables = JSON.stringify((await must('GET', `/environment/${id}/environmentVariable`)).results)
  assert.match(variables, /GREETING/, `outputs of ${migrate.id}`)
  const hosts = (await must('GET', `/container/${one.id}/link`)).results.map(({ url }: Json) => url)
  const { items } = await admin.get(`/apis/networking.k8s.io/v1/namespaces/slipway-${id}/ingresses`)
  const published = items.flatMap(({ spec }: Json) => spec.rules.map(({ host }: Json) => `http://${host}`))
  for (const url of hosts) if (/^http/.test(url)) assert.ok(published.includes(url), `${url} of ${published.join()}`)
  await must('POST', `/job/${cron.id}/redeploy?forceEvent=CRON`)
  await settles(id, 'DEPLOYED')

  await must('PUT', `/container/${one.id}`, { arguments: [servingScript.replace('$PAGE', 'second')] })
  const plan = await must('POST', `/environment/${id}/deploy?dry_run=true`)
  const effects = plan.stages.flatMap(({ services }: Json) =>
    services.map(({ name, effect }: Json) => `${name} ${effect}`),
  )
  assert.ok(
    effects.some((each: string) => /^api /.test(each)),
    effects.join(),
  )
  await act(id, 'deploy', 'DEPLOYED')
  await shows(one.id, 'second')
  await must('POST', `/container/${one.id}/rollback`, {})
  await settles(id, 'DEPLOYED')
  await shows(one.id, 'first')

  await act(id, 'stop', 'STOPPED')
  const pods = (await left()).filter((each) => each.startsWith('api/v1/pods'))
  assert.deepEqual(
    pods.filter((each) => !each.includes(' t-')),
    [],
  )
  await act(id, 'deploy', 'DEPLOYED')
  await shows(two.id, 'first')

  const clone = await must('POST', `/environment/${id}/clone`, { name: 'copy' })
  await act(clone.id, 'deploy', 'DEPLOYED')
  for (const each of [clone.id, id]) {
    await must('DELETE', `/environment/${each}`)
    await until(async () => (await call('GET', `/environment/${each}`)).status === 404, {
      ...patience,
      what: 'its end',
    })
  }
  await until(async () => (await left()).length === 0, { ...patience, what: 'nothing to be left' }).catch(async () =>
    assert.deepEqual(await left(), []),
  )
})

test('an image that runs as root is refused with advice, and the previous version keeps serving', {
  skip,
}, async () => {
  const project = await must('POST', `${base}/project`, { name: 'root' })
  const { id } = await must('POST', `/project/${project.id}/environment`, { name: 'production', cluster: clusterId })
  const { id: service } = await must(
    'POST',
    `/environment/${id}/container`,
    body('api', { ports: [publicPort(8080, 'HTTP')] }),
  )
  await act(id, 'deploy', 'DEPLOYED')
  await must('PUT', `/container/${service}`, { image_name: 'shop/root' })
  await must('POST', `/container/${service}/deploy`, { image_tag: '1' })
  const status = await until(
    async () => {
      const found = await must('GET', `/container/${service}/status`)
      return isSettled(found.state) && found.state !== 'DEPLOYED' ? found : null
    },
    { ...patience, what: 'its failure' },
  )
  assert.equal(status.state, 'DEPLOYMENT_ERROR')
  const logs = JSON.stringify(await must('GET', `/environment/${id}/logs`))
  assert.match(logs, /runs as root.*set USER to a number/)
  await must('DELETE', `/environment/${id}`)
  await until(async () => (await left()).length === 0, { ...patience, what: 'nothing to be left' })
})
