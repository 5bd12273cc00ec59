/** One whole environment on a real cluster, through the API: from its first deployment until nothing of it is left. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Json } from '../support/api.ts'
import { isSettled } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import {
  type Place,
  publicPort,
  servingContainer,
  servingScript,
  needsOwnNode as skip,
  startPlace,
} from './cluster/place.ts'

const patience = { timeoutMs: 60_000 }
const place = (skip === false ? await startPlace() : {}) as Place
const { call, organizationId, admin, registryId, clusterId, ownerId, must } = place
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
  const logs = states.every((state) => state === wanted)
    ? ''
    : JSON.stringify((await call('GET', `/environment/${environmentId}/logs`)).body).slice(-3000)
  assert.deepEqual(new Set(states), new Set([wanted]), logs)
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

test('an environment with a database, jobs and containers lives its whole life and leaves nothing', {
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
  const one = await must('POST', `/environment/${id}/container`, body('api'))
  const two = await must(
    'POST',
    `/environment/${id}/container`,
    body('web', { min_running_instances: 2, max_running_instances: 2 }),
  )
  await act(id, 'deploy', 'DEPLOYED')
  await shows(one.id, 'first')
  await shows(two.id, 'first')
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

test('an image that runs as root is refused with what to do, and the version before serves on', { skip }, async () => {
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
