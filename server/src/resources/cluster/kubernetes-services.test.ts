/** Services on a Kubernetes cluster, through the API: on a cluster in memory, whose pods behave as a test says. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { cronBody } from '../../../test/cases/job.ts'
import { applicationBody, type Json } from '../../../test/support/api.ts'
import { port, startServices } from '../../../test/support/kubernetes/services.ts'
import { hearSocket } from '../../../test/support/streams.ts'
import { until } from '../../../test/support/until.ts'

const services = await startServices()
const { api, call, base, kubernetes, registryId, clusterId } = services
const { must, newEnvironment, containerBody, atRest, deploy, namesOf, specOf } = services

test('a container is deployed, changed, rolled back, stopped, started and deleted, and nothing of it is left', async () => {
  const environmentId = await newEnvironment()
  const { id } = await must('POST', `/environment/${environmentId}/container`, containerBody({ name: 'api' }))
  const path = `/container/${id}`
  const plan = await must('POST', `${path}/deploy?dry_run=true`, { image_tag: '1' })
  assert.match(JSON.stringify(plan), /CREATE|START|DEPLOY/)
  await deploy(path, { image_tag: '1' })
  const imageNow = () => specOf('Deployment', environmentId, `s-${id}`).template.spec.containers[0].image as string
  const first = imageNow()
  assert.match(first, /\/shop\/api@sha256:[0-9a-f]{64}$/)
  assert.equal((await must('GET', `${path}/status`)).state, 'DEPLOYED')
  const links = (await must('GET', `${path}/link`)).results
  assert.deepEqual(namesOf('Ingress', environmentId), [`s-${id}`])
  const hosts = specOf('Ingress', environmentId, `s-${id}`).rules.map(({ host }: Json) => `http://${host}`)
  assert.deepEqual(links.map(({ url }: Json) => url).sort(), hosts.sort())
  assert.deepEqual(await api.router.routes(), [], 'our router leads nowhere there')

  const { socket } = await hearSocket(`${api.url}/service/metrics?service=${id}`, api.token)
  const [, why] = await once(socket, 'close')
  assert.match(String(why), /^NotFound: The cluster has no metrics: install metrics-server/)

  await deploy(path, { image_tag: '2' })
  assert.notEqual(imageNow(), first)
  await must('POST', `${path}/rollback`, {})
  await until(async () => imageNow() === first && (await atRest(path, /^DEPLOYED$/)), { what: 'the image of before' })

  await must('POST', `${path}/stop`)
  await atRest(path, /^STOPPED$/)
  assert.deepEqual([namesOf('Deployment', environmentId), namesOf('Pod', environmentId)], [[], []])
  await deploy(path)
  await must('DELETE', path)
  await until(async () => (await call('GET', path)).status === 404, { what: 'its end' })
  for (const kind of ['Deployment', 'Pod', 'Service', 'Ingress', 'Secret', 'NetworkPolicy'])
    assert.deepEqual(
      namesOf(kind, environmentId).filter((name) => name !== 'environment'),
      [],
      kind,
    )
  await must('DELETE', `/environment/${environmentId}`)
  const isGone = () => kubernetes.store.find('Namespace', undefined, `slipway-${environmentId}`) === undefined
  await until(isGone, { what: 'the end of the namespace', timeoutMs: 20_000 })
})

test('databases run as a user of their own with a volume, and jobs as jobs whose outputs are collected', async () => {
  const environmentId = await newEnvironment()
  const { id: database } = await must('POST', `/environment/${environmentId}/database`, {
    ...{ name: 'cache', type: 'REDIS', version: '7', mode: 'CONTAINER' },
  })
  await deploy(`/database/${database}`)
  const { template } = specOf('StatefulSet', environmentId, `s-${database}`)
  assert.deepEqual([template.spec.securityContext.runAsUser, template.spec.securityContext.fsGroup], [999, 10_001])
  assert.equal(namesOf('PersistentVolumeClaim', environmentId).length, 1)

  kubernetes.behave = ({ image }) =>
    image.includes('shop/task')
      ? { kind: 'end', exitCode: 0, left: '{"ANSWER":{"value":"42"}}', lines: ['done'] }
      : { kind: 'ready' }
  const image = { registry_id: registryId, image_name: 'shop/task', tag: '1' }
  const { id: job } = await must(
    'POST',
    `/environment/${environmentId}/job`,
    cronBody(registryId, { name: 'migrate', source: { image }, schedule: { on_start: { arguments: ['migrate'] } } }),
  )
  await deploy(`/job/${job}`)
  const told = JSON.stringify((await must('GET', `/environment/${environmentId}/environmentVariable`)).results)
  assert.match(told, /ANSWER/)
})

test('a public database is reached inside by its own name, and outside at the address that its load balancer has', async () => {
  const environmentId = await newEnvironment()
  const { id } = await must('POST', `/environment/${environmentId}/database`, {
    ...{ name: 'open', type: 'REDIS', version: '7', mode: 'CONTAINER', accessibility: 'PUBLIC' },
  })
  await deploy(`/database/${id}`)
  const logged = async () => JSON.stringify(await must('GET', `/environment/${environmentId}/logs`))
  assert.match(await logged(), /load balancer for TCP port \d+ has no address yet/)
  const { results: variables } = await must('GET', `/environment/${environmentId}/environmentVariable`)
  const toldAs = (end: string): string | undefined =>
    variables.find(({ key }: Json) => /^QOVERY_REDIS_Z/.test(key) && key.endsWith(end))?.value
  assert.deepEqual([toldAs('_HOST'), toldAs('_PORT'), toldAs('_HOST_EXTERNAL')], [`service-${id}`, '6379', undefined])
  const credentials = () => must('GET', `/database/${id}/masterCredentials`)
  const inside = { host: `service-${id}`, port: 6379 }
  const { host, port: shown } = await must('GET', `/database/${id}`)
  assert.deepEqual({ host, port: shown }, inside)
  assert.partialDeepStrictEqual(await credentials(), inside)
  const links = async () => (await must('GET', `/environment/${environmentId}/link`)).results
  assert.deepEqual(await links(), [])

  const balancer = kubernetes.store.find('Service', `slipway-${environmentId}`, `s-${id}-ports`)!
  const outside = Number(toldAs('_PORT_EXTERNAL'))
  kubernetes.store.merge(balancer, { status: { loadBalancer: { ingress: [{ ip: '192.0.2.7' }] } } })
  assert.partialDeepStrictEqual(await credentials(), { host: '192.0.2.7', port: outside })
  assert.deepEqual(
    (await links()).map(({ url }: Json) => url),
    [`tcp://192.0.2.7:${outside}`],
  )
  kubernetes.store.merge(balancer, { status: { loadBalancer: { ingress: [] } } })
  assert.partialDeepStrictEqual(await credentials(), inside)
})

test('what such a cluster has no way to is refused with the reason, and the plan says so', async () => {
  const environmentId = await newEnvironment()
  const cases: [string, Json, RegExp][] = [
    ['application', applicationBody('built'), /has no container registry/],
    [
      'container',
      containerBody({ name: 'grpc', ports: [{ ...port, protocol: 'GRPC' }] }),
      /does not publish gRPC ports/,
    ],
    [
      'container',
      containerBody({ name: 'sleepy', min_running_instances: 0, max_running_instances: 2 }),
      /does not let services sleep/,
    ],
    [
      'container',
      containerBody({ name: 'paths', ports: [{ ...port, public_path: '/api', public_path_rewrite: '/' }] }),
      /does not rewrite paths/,
    ],
  ]
  for (const [kind, body, sentence] of cases) {
    const { id } = await must('POST', `/environment/${environmentId}/${kind}`, body)
    const refused = await call('POST', `/${kind}/${id}/deploy`, kind === 'container' ? { image_tag: '1' } : {})
    assert.deepEqual([refused.status, refused.body.code], [400, 'not_deployable'], body.name)
    assert.match(refused.body.message, sentence)
    const plan = await must('POST', `/environment/${environmentId}/deploy?dry_run=true`)
    assert.match(JSON.stringify(plan), sentence)
  }
})

test('hosts lead to the ingress of the cluster: below its own domain, which services follow, and to custom domains', async () => {
  const environmentId = await newEnvironment()
  const { id } = await must('POST', `/environment/${environmentId}/container`, containerBody({ name: 'web' }))
  const path = `/container/${id}`
  const domains = `${path}/customDomain`
  const wanted = { domain: 'www.shop.test', generate_certificate: true }
  const unissued = await call('POST', domains, wanted)
  assert.deepEqual([unissued.status, unissued.body.details?.[0]?.field], [400, '/generate_certificate'])
  assert.match(unissued.body.message, /whose own ingress has its certificates/)
  const { id: domainId } = await must('POST', domains, { ...wanted, generate_certificate: false })
  assert.equal((await call('PUT', `${domains}/${domainId}`, { generate_certificate: true })).status, 400)
  const { settings } = api.parts
  api.parts.settings = { ...settings, routerTlsPort: 443 }
  const uploaded = await call('PUT', `${domains}/${domainId}/certificate`, { certificate: 'x', private_key: 'y' })
  api.parts.settings = settings
  assert.deepEqual([uploaded.status, /own ingress has its certificates/.test(uploaded.body.message)], [400, true])
  await deploy(path, { image_tag: '1' })
  const hosts = (): string[] =>
    (specOf('Ingress', environmentId, `s-${id}`)?.rules ?? []).map(({ host }: Json) => host).sort()
  assert.deepEqual(hosts(), ['p8080-web-production.localhost', 'web-production.localhost', 'www.shop.test'])
  const refused = await call('PUT', `/cluster/${clusterId}/dnsProvider`, {
    dns_provider: { provider: 'QOVERY', domain: 'no' },
  })
  assert.equal(refused.body.details?.[0]?.field, '/dns_provider/domain')
  await must('PUT', `/cluster/${clusterId}/dnsProvider`, { dns_provider: { provider: 'QOVERY', domain: 'apps.test' } })
  const named = ['p8080-web-production.apps.test', 'web-production.apps.test', 'www.shop.test']
  await until(() => JSON.stringify(hosts()) === JSON.stringify(named), { what: 'the new names', timeoutMs: 20_000 })
  const links = (await must('GET', `${path}/link`)).results
  assert.deepEqual(
    links.map(({ url }: Json) => url).sort(),
    named.map((host) => `http://${host}`),
  )
  const { results: table } = await must('GET', `${base}/cluster/${clusterId}/routingTable`)
  const listed = table.map(({ destination }: Json) => destination)
  assert.ok(
    named.every((host) => listed.includes(host)),
    listed.join(),
  )
  const [domain] = (await must('GET', `${path}/customDomain`)).results
  assert.equal(domain.validation_domain, 'web-production.apps.test')
  assert.equal(domain.certificate, null)
  assert.equal((await must('PUT', path, { ports: [{ ...port, internal_port: 9090 }] })).ports[0].internal_port, 9090)
  const { results: after } = await must('GET', `${path}/link`)
  assert.ok(
    after.every(({ url }: Json) => /apps\.test|shop\.test/.test(url)),
    JSON.stringify(after),
  )
})

test('the number of instances is left to the autoscaler of the cluster', async () => {
  const environmentId = await newEnvironment()
  const body = containerBody({ name: 'busy', min_running_instances: 2, max_running_instances: 5 })
  const { id } = await must('POST', `/environment/${environmentId}/container`, body)
  await deploy(`/container/${id}`, { image_tag: '1' })
  const { minReplicas, maxReplicas } = specOf('HorizontalPodAutoscaler', environmentId, `s-${id}`)
  assert.deepEqual([minReplicas, maxReplicas], [2, 5])
  const controller = kubernetes.store.find('Deployment', `slipway-${environmentId}`, `s-${id}`)!
  kubernetes.store.merge(controller, { spec: { replicas: 4 } })
  const pods = () => namesOf('Pod', environmentId).length
  await until(() => pods() === 4, { what: 'four pods' })
  const asked = (words: RegExp) => kubernetes.asked.filter((each) => words.test(each)).length
  const [changes, looks] = [asked(/^PATCH/), asked(/^GET .*\/ingresses/)]
  await api.database.query(`select pg_notify('slipway_routes', $1)`, [id])
  await until(() => asked(/^GET .*\/ingresses/) > looks, { what: 'the reconciler to look' })
  await until(async () => (await call('GET', `/container/${id}/status`)).body.state === 'DEPLOYED', {
    what: 'its state',
  })
  assert.deepEqual([asked(/^PATCH/), pods()], [changes, 4])
})

test('a cluster names its way in: with a Gateway, hosts become its routes, gRPC and rewrites are possible, and links follow', async () => {
  const environmentId = await newEnvironment()
  const body = containerBody({ name: 'calls', ports: [{ ...port, protocol: 'GRPC' }] })
  const { id } = await must('POST', `/environment/${environmentId}/container`, body)
  const path = `/container/${id}`
  const refused = await call('POST', `${path}/deploy`, { image_tag: '1' })
  assert.match(refused.body.message, /does not publish gRPC ports.*give the cluster an `ingress` that can/)
  const { id: webId } = await must(
    'POST',
    `/environment/${environmentId}/container`,
    containerBody({ name: 'page', ports: [{ ...port, public_path: '/api', public_path_rewrite: '/' }] }),
  )
  const cluster = `${base}/cluster/${clusterId}`
  const edit = async (ingress: Json | null, at = cluster) => {
    const { name, cloud_provider, kubernetes: mode, region } = (await call('GET', at)).body
    return call('PUT', at, { name, cloud_provider, kubernetes: mode, region, ingress })
  }
  const gateway = { name: 'main', namespace: 'edge', listener: 'https' }
  const mixed = await edit({ gateway, class_name: 'nginx' })
  assert.deepEqual([mixed.status, mixed.body.details?.[0]?.field], [400, '/ingress/class_name'])
  const docker = await edit({ class_name: 'nginx' }, `${base}/cluster/${api.clusterId}`)
  assert.match(docker.body.message, /not a Kubernetes cluster, so its services are reached by this server's router/)

  const before = await api.parts.clusters.of(clusterId)
  const kept = await edit({ gateway, has_certificate: true })
  assert.deepEqual([kept.status, kept.body.ingress.gateway.listener], [200, 'https'], JSON.stringify(kept.body))
  const isOther = async () => (await api.parts.clusters.of(clusterId)) !== before
  await until(isOther, { what: 'the new connection', timeoutMs: 20_000 })
  const grpcAndMore = ['grpc', 'path-rewrites']
  const { abilities } = (await api.parts.clusters.of(clusterId)).runtime
  assert.ok(grpcAndMore.every((each) => abilities.has(each as 'grpc')))

  kubernetes.refuse = (method, kind) => (method === 'PATCH' && /Route$/.test(kind) ? [404, 'not found'] : null)
  await deploy(path, { image_tag: '1' }, /DEPLOYMENT_ERROR/)
  assert.match((await must('GET', `${path}/status`)).error.message, /does not have the Gateway API/)
  kubernetes.refuse = () => null
  await deploy(path, { image_tag: '1' })
  const specs = (kind: string) => kubernetes.store.all(kind, `slipway-${environmentId}`).map(({ spec }) => spec as Json)
  const hostsOf = (kind: string): string[] =>
    specs(kind)
      .flatMap(({ hostnames }) => hostnames)
      .sort()
  const links = async (at: string): Promise<string[]> =>
    (await must('GET', `${at}/link`)).results.map(({ url }: Json) => url).sort()
  assert.deepEqual(
    hostsOf('GRPCRoute').map((host) => `https://${host}`),
    await links(path),
  )
  assert.deepEqual([specs('GRPCRoute')[0]!.parentRefs[0].sectionName, namesOf('Ingress', environmentId)], ['https', []])
  await deploy(`/container/${webId}`, { image_tag: '1' })
  assert.deepEqual(
    hostsOf('HTTPRoute').map((host) => `https://${host}`),
    await links(`/container/${webId}`),
  )

  await must('PUT', path, { ports: [port] })
  await deploy(path, { image_tag: '1' })
  await until(() => specs('GRPCRoute').length === 0, { what: 'the end of the routes of before' })
  await must('DELETE', `/container/${webId}`)
  assert.equal((await edit({ annotations: { 'example.test/a': 'b' }, issuer: 'letsencrypt' })).status, 200)
  await until(() => namesOf('Ingress', environmentId).includes(`s-${id}`) && specs('HTTPRoute').length === 0, {
    ...{ what: 'Ingresses in place of routes', timeoutMs: 20_000 },
  })
  const { annotations } = kubernetes.store.find('Ingress', `slipway-${environmentId}`, `s-${id}`)!.metadata
  assert.partialDeepStrictEqual(annotations, { 'example.test/a': 'b', 'cert-manager.io/cluster-issuer': 'letsencrypt' })
  const domain = await must('POST', `${path}/customDomain`, { domain: 'tls.shop.test', generate_certificate: true })
  assert.match(domain.certificate.reason, /The issuer letsencrypt of the cluster orders it/)
  assert.equal((await edit(null)).status, 200)
})
