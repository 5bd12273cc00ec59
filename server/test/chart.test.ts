/**
 * The chart that runs Slipway on Kubernetes: its objects are valid, follow its values, and request no more rights than
 * needed.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { accessManifest } from '../src/runtimes/kubernetes/rights.ts'
import { parseSettings } from '../src/settings/settings.ts'
import type { Json } from './support/api.ts'
import { chartFolder, renderChart, runHelm, withoutHelm } from './support/kubernetes/helm-program.ts'
import { published, schemaProblems } from './support/kubernetes/schemas.ts'

const least = { image: { repository: 'registry.example/slipway', tag: '1' }, secret: { name: 'slipway' } }
const peer = { namespaceSelector: { matchLabels: { team: 'ingress' } } }
const most = {
  ...least,
  imagePullSecrets: [{ name: 'registry' }],
  replicas: 3,
  secret: { name: 'slipway', oidcClientSecretKey: 'oidc', metricsTokenKey: 'metrics' },
  config: {
    SLIPWAY_LIMIT_MEMORY_MB: 1_000_000,
    SLIPWAY_KUBERNETES_INGRESS_TLS: true,
    SLIPWAY_OUTBOUND_ALLOW: 'git.internal',
    SLIPWAY_OIDC_ISSUER: 'https://id.example',
    SLIPWAY_OIDC_CLIENT_ID: 'slipway',
  },
  service: { type: 'LoadBalancer', port: 8000, annotations: { internal: 'true' } },
  ingress: {
    ...{ enabled: true, className: 'nginx', host: 'slipway.example.org', tlsSecret: 'slipway-tls' },
    annotations: { 'nginx.ingress.kubernetes.io/proxy-body-size': '0' },
  },
  serviceAccount: { annotations: { team: 'platform' } },
  access: { create: true },
  networkPolicy: { enabled: true, from: [peer], egress: [{ to: [peer] }] },
  podAnnotations: { 'example.org/scrape': 'true' },
  nodeSelector: { pool: 'control' },
  tolerations: [{ key: 'control', operator: 'Exists' }],
  affinity: { podAntiAffinity: {} },
  priorityClassName: 'high',
}
const kindsOf = (objects: Json[]): string[] => objects.map(({ kind }) => kind).sort()
const ofKind = (objects: Json[], wanted: string): Json => objects.find(({ kind }) => kind === wanted)
const podOf = (objects: Json[]): Json => ofKind(objects, 'Deployment').spec.template.spec
const variablesOf = (objects: Json[]): Record<string, string> =>
  Object.fromEntries(
    podOf(objects).containers[0].env.map(({ name, value, valueFrom }: Json) => [
      name,
      value ?? `from ${valueFrom.secretKeyRef.key} of ${valueFrom.secretKeyRef.name}`,
    ]),
  )

const options = { skip: withoutHelm }

test('helm lint reports nothing', options, async () => {
  for (const values of [least, most]) {
    const { code, text } = await runHelm(['lint', '--strict', '--quiet', chartFolder], values)
    assert.deepEqual([code, text.trim()], [0, ''])
  }
})

test('every object is valid in the oldest and the newest Kubernetes', options, async () => {
  for (const version of Object.keys(published)) {
    const [few, all] = [await renderChart(least, `${version}.0`), await renderChart(most, `${version}.0`)]
    const usual = ['Deployment', 'NetworkPolicy', 'PodDisruptionBudget', 'Service', 'ServiceAccount']
    assert.deepEqual(kindsOf(few), usual)
    assert.deepEqual(kindsOf(all), [...usual, 'ClusterRole', 'ClusterRoleBinding', 'Ingress', 'Secret'].sort())
    for (const object of [...few, ...all]) assert.deepEqual(schemaProblems(version, object as never), [], version)
  }
  assert.ok(!kindsOf(await renderChart({ ...least, replicas: 1 })).includes('PodDisruptionBudget'))
})

test('the account has no rights, or exactly those that registering a cluster needs', options, async () => {
  const objects = await renderChart(most)
  const wanted = accessManifest.items.find(({ kind }) => kind === 'ClusterRole') as Json
  assert.deepEqual(ofKind(objects, 'ClusterRole').rules, wanted.rules)
  const { roleRef, subjects } = ofKind(objects, 'ClusterRoleBinding')
  assert.equal(roleRef.name, ofKind(objects, 'ClusterRole').metadata.name)
  const { name, namespace } = ofKind(objects, 'ServiceAccount').metadata
  assert.deepEqual(subjects, [{ kind: 'ServiceAccount', name, namespace }])
  assert.equal(podOf(objects).serviceAccountName, name)
  for (const each of [objects, await renderChart(least)]) assert.equal(podOf(each).automountServiceAccountToken, false)
})

test('the pods are restricted and spread, and their probes use the server’s endpoints', options, async () => {
  const pod = podOf(await renderChart(least))
  const [container] = pod.containers
  const { runAsNonRoot, seccompProfile } = pod.securityContext
  assert.deepEqual([runAsNonRoot, seccompProfile], [true, { type: 'RuntimeDefault' }])
  assert.deepEqual(container.securityContext, {
    ...{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true },
    capabilities: { drop: ['ALL'] },
  })
  assert.equal(pod.enableServiceLinks, false)
  assert.equal(pod.topologySpreadConstraints.length, 2)
  const asked = ['startupProbe', 'livenessProbe', 'readinessProbe'].map((probe) => container[probe].httpGet)
  assert.deepEqual(
    asked.map(({ path, port }) => `${path} ${port}`),
    ['/healthz http', '/healthz http', '/readyz http'],
  )
  const writable = container.volumeMounts.filter(({ readOnly }: Json) => readOnly !== true)
  assert.deepEqual(
    writable.map(({ mountPath }: Json) => mountPath),
    ['/data', '/tmp'],
  )
})

test('the server reads the settings of the values correctly', options, async () => {
  const variables = variablesOf(await renderChart(most))
  assert.deepEqual(
    ['SLIPWAY_ADMIN_TOKEN', 'DATABASE_URL', 'SLIPWAY_METRICS_TOKEN', 'SLIPWAY_OIDC_CLIENT_SECRET'].map(
      (name) => variables[name],
    ),
    ['from admin-token of slipway', 'from database-url of slipway', 'from metrics of slipway', 'from oidc of slipway'],
  )
  const token = 'a'.repeat(24)
  const given = {
    SLIPWAY_ADMIN_TOKEN: token,
    SLIPWAY_METRICS_TOKEN: token,
    DATABASE_URL: 'postgresql://slipway:pass@db:5432/slipway',
  }
  const { settings, warnings } = parseSettings({ ...variables, ...given })
  assert.deepEqual(warnings, [])
  const { docker, host, port, dataDir, masterKeyFile, publicUrl, consoleUrl, limits, kubernetes, outboundAllow } =
    settings
  assert.deepEqual([docker, host, port], [false, '0.0.0.0', 8080])
  assert.deepEqual([dataDir, masterKeyFile], ['/data/slipway', '/etc/slipway/keys/master'])
  assert.deepEqual([publicUrl, consoleUrl], Array(2).fill('https://slipway.example.org'))
  assert.deepEqual([limits.memoryMb, kubernetes.ingressTls], [1_000_000, true])
  assert.deepEqual(outboundAllow, ['kubernetes.default.svc:443', 'git.internal'])
})

/**
 * Settings that the chart decides, and those without effect there: it publishes no router, and there is no Docker
 * engine.
 */
const decided =
  /^(SLIPWAY_(HOST|PORT|DOCKER|DATA_DIR|MASTER_KEY_FILE|ADMIN_TOKEN|METRICS_TOKEN|OIDC_CLIENT_SECRET)|DATABASE_URL)$/
const idle =
  /^(DOCKER_HOST|SLIPWAY_(ROUTER_.*|ACME_.*|HSTS_SECONDS|DOMAIN|API_HOST|PORT_RANGE|EXTRA_PORTS|ENGINE_(SOCKETS|IMAGES)|SAMPLE|(CLUSTER|DATABASE)_MODULES|VOLUME_SIZES|(SLEEP_AFTER|SCALE_UP|SCALE_DOWN)_SECONDS|LIMIT_(CERTIFICATES|DISK_GB)))$/

test('values accept every setting of the guide that acts there, and no other', () => {
  const guide = readFileSync(new URL('../../docs/guides/configuration.md', import.meta.url), 'utf8')
  const rows = guide.split('\n').flatMap((line) => /^\| (`[^|]*) \|/.exec(line)?.[1] ?? [])
  const settings = rows.flatMap((row) => [...row.matchAll(/`([A-Z_]+)`/g)].map(([, name]) => name!))
  assert.ok(settings.length > 80)
  const schema = JSON.parse(readFileSync(`${chartFolder}/values.schema.json`, 'utf8'))
  const wanted = settings.filter((name) => !decided.test(name) && !idle.test(name))
  assert.deepEqual(Object.keys(schema.properties.config.properties).sort(), wanted.sort())
})

const bad: [values: Json, about: RegExp][] = [
  [{ image: { repository: '', tag: '1' } }, /repository/],
  [{ image: { repository: 'registry.example/slipway', tag: '' } }, /tag/],
  [{ secret: { name: '' } }, /secret/],
  [{ secret: { databaseUrl: 'postgresql://slipway:pass@db/slipway' } }, /databaseUrl/],
  [{ replicas: 0 }, /replicas/],
  [{ replicas: 'two' }, /replicas/],
  [{ config: { SLIPWAY_ADMIN_TOKEN: 'in the open' } }, /SLIPWAY_ADMIN_TOKEN/],
  [{ config: { SLIPWAY_ROUTER_PORT: 80 } }, /SLIPWAY_ROUTER_PORT/],
  [{ config: { SLIPWAY_RATE_LIMIT: 1.5 } }, /SLIPWAY_RATE_LIMIT/],
  [{ config: { SLIPWAY_NOVELTY: 'x' } }, /SLIPWAY_NOVELTY/],
  [{ service: { type: 'ExternalName' } }, /service/],
  [{ ingress: { enabled: true } }, /ingress/],
  [{ dataSize: 'much' }, /dataSize/],
  [{ novelty: 1 }, /novelty/],
]
for (const [values, about] of bad)
  test(`${JSON.stringify(values)} is refused`, options, async () => {
    await assert.rejects(renderChart({ ...least, ...values }), about)
  })
