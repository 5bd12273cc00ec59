/** The effect of the settings of services and of their cluster on a Kubernetes cluster in memory, through the API. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { cronBody } from '../../../test/cases/job.ts'
import type { Json } from '../../../test/support/api.ts'
import { startServices } from '../../../test/support/kubernetes/services.ts'
import { until } from '../../../test/support/until.ts'

const {
  api,
  call,
  base,
  kubernetes,
  registryId,
  clusterId,
  must,
  newEnvironment,
  containerBody,
  atRest,
  deploy,
  specOf,
} = await startServices()

test('where instances are, how they follow each other and scale by memory is what their settings say; on a Docker engine that is named as only recorded', async () => {
  const environmentId = await newEnvironment()
  const body = containerBody({ name: 'spread', min_running_instances: 2, max_running_instances: 5 })
  const { id } = await must('POST', `/environment/${environmentId}/container`, body)
  const path = `/container/${id}`
  const settings = {
    'deployment.affinity.node.required': { disk: 'ssd' },
    'deployment.antiaffinity.pod': 'Requirred',
    'deployment.topology_spread.zone': 'DoNotSchedule',
    'deployment.update_strategy.rolling_update.max_surge_percent': 50,
    'hpa.memory.average_utilization_percent': 70,
  }
  const placed = await call('PUT', `${path}/advancedSettings`, settings)
  assert.deepEqual([placed.status, placed.headers.get('slipway-not-applied')], [201, null])
  await deploy(path, { image_tag: '1' })
  const { metrics } = specOf('HorizontalPodAutoscaler', environmentId, `s-${id}`)
  const targets = metrics.map(({ resource: { name, target } }: Json) => [name, target.averageUtilization])
  assert.deepEqual(Object.fromEntries(targets), { cpu: 60, memory: 70 })
  const specNow = () => specOf('Deployment', environmentId, `s-${id}`)
  const podNow = () => specNow().template.spec
  const zonesNow = () =>
    podNow()
      .topologySpreadConstraints.filter(({ topologyKey }: Json) => topologyKey === 'topology.kubernetes.io/zone')
      .map(({ whenUnsatisfiable }: Json) => whenUnsatisfiable)
  assert.deepEqual([podNow().nodeSelector, zonesNow()], [{ disk: 'ssd' }, ['DoNotSchedule']])
  assert.deepEqual(specNow().strategy.rollingUpdate, { maxUnavailable: 0, maxSurge: '50%' })
  const [apart] = podNow().affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution
  assert.equal(apart.topologyKey, 'kubernetes.io/hostname')
  const revision = specNow().template.metadata.labels['slipway.revision']
  assert.equal(apart.labelSelector.matchLabels['slipway.revision'], revision, 'two versions may be beside each other')

  const milder = { 'deployment.antiaffinity.pod': 'Preferred', 'deployment.topology_spread.zone': 'ScheduleAnyway' }
  await must('PUT', `${path}/advancedSettings`, milder)
  const plan = await must('POST', `${path}/deploy?dry_run=true`, { image_tag: '1' })
  const fields = plan.stages[0].services[0].changes.configuration.map(({ field }: Json) => field)
  assert.ok(fields.includes('/advanced_settings/deployment.antiaffinity.pod'), fields.join())
  assert.deepEqual(plan.stages[0].services[0].not_applied, [])
  await deploy(path, { image_tag: '1' })
  assert.deepEqual([podNow().affinity, podNow().nodeSelector, zonesNow()], [undefined, undefined, ['ScheduleAnyway']])
  await must('PUT', `${path}/advancedSettings`, { 'deployment.topology_spread.zone': 'Disabled' })
  await deploy(path, { image_tag: '1' })
  assert.deepEqual(zonesNow(), [])

  kubernetes.behave = ({ image }) => (image.includes('shop/task') ? { kind: 'end', exitCode: 0 } : { kind: 'ready' })
  const seen: Json[] = []
  const { store } = kubernetes
  store.listen(store.version, ({ object }) => void (object.kind === 'Job' && seen.push(object)))
  const image = { registry_id: registryId, image_name: 'shop/task', tag: '1' }
  const schedule = { on_start: { arguments: ['migrate'] } }
  const { id: job } = await must(
    'POST',
    `/environment/${environmentId}/job`,
    cronBody(registryId, { name: 'here', source: { image }, schedule }),
  )
  await must('PUT', `/job/${job}/advancedSettings`, { 'deployment.affinity.node.required': { disk: 'ssd' } })
  await deploy(`/job/${job}`)
  assert.deepEqual(seen[0]!.spec.template.spec.nodeSelector, { disk: 'ssd' })

  const { id: projectId } = await must('POST', `${base}/project`, { name: 'on docker' })
  const { id: docker } = await must('POST', `/project/${projectId}/environment`, { name: 'a', cluster: api.clusterId })
  const { id: other } = await must('POST', `/environment/${docker}/container`, containerBody({ name: 'spread' }))
  const { headers } = await call('PUT', `/container/${other}/advancedSettings`, settings)
  assert.equal(
    headers.get('slipway-not-applied'),
    Object.keys(settings)
      .map((key) => `/${key}`)
      .join(', '),
  )
  const idle = await must('POST', `/container/${other}/deploy?dry_run=true`, { image_tag: '1' })
  assert.deepEqual(
    idle.stages[0].services[0].not_applied,
    Object.keys(settings).map((key) => `/advanced_settings/${key}`),
  )
})

test('new volumes are of the class that the cluster names; one that is there keeps its own', async () => {
  const environmentId = await newEnvironment()
  const settings = `${base}/cluster/${clusterId}/advancedSettings`
  const classes = () =>
    kubernetes.store.all('PersistentVolumeClaim', `slipway-${environmentId}`).map(({ spec }) => spec.storageClassName)
  const name = async (storageClass: string): Promise<string | null> => {
    const { runtime } = await api.parts.clusters.of(clusterId)
    const { status, headers } = await call('PUT', settings, { 'storageclass.fast_ssd': storageClass })
    assert.equal(status, 201)
    const isOther = async () => (await api.parts.clusters.of(clusterId)).runtime !== runtime
    await until(isOther, { what: 'the other connection', timeoutMs: 60_000 })
    return headers.get('slipway-not-applied')
  }
  const newDatabase = async (): Promise<string> => {
    const made = { name: `cache ${kubernetes.asked.length}`, type: 'REDIS', version: '7', mode: 'CONTAINER' }
    const { id } = await must('POST', `/environment/${environmentId}/database`, made)
    await deploy(`/database/${id}`)
    return id
  }
  assert.equal(await name('fast'), null)
  const first = await newDatabase()
  assert.deepEqual(classes(), ['fast'])
  await name('faster')
  await deploy(`/database/${first}`, {})
  await newDatabase()
  assert.deepEqual(classes().sort(), ['fast', 'faster'])
  await name('')
  const path = `/database/${first}`
  const sizeNow = () => {
    const claims = kubernetes.store.all('PersistentVolumeClaim', `slipway-${environmentId}`)
    return claims.find(({ spec }) => spec.storageClassName === 'fast')!.spec.resources.requests.storage
  }
  await must('PUT', path, { storage: 20 })
  await deploy(path)
  assert.equal(sizeNow(), '20Gi', 'it grows')
  await must('POST', `${path}/rollback`, {})
  await until(async () => (await call('GET', `${path}/status`)).body.service_deployment_status === 'OUT_OF_DATE', {
    what: 'the version before',
  })
  await atRest(path, /^DEPLOYED$/)
  assert.equal(sizeNow(), '20Gi', 'and does not shrink')
  await must('PUT', path, { storage: 15 })
  await deploy(path, {}, /^DEPLOYMENT_ERROR$/)
  assert.match((await must('GET', `${path}/status`)).error.message, /has 20 GB.* only grow\. Set the size back to 20/)
  assert.deepEqual(classes().sort(), ['fast', 'faster'])
  assert.equal((await call('PUT', settings, { 'storageclass.fast_ssd': 'Not/a name' })).status, 400)
  const { headers } = await call('PUT', `${base}/cluster/${api.clusterId}/advancedSettings`, {
    'storageclass.fast_ssd': 'fast',
  })
  assert.equal(headers.get('slipway-not-applied'), '/storageclass.fast_ssd')
})
