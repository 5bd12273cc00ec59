import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Json } from '../../../../test/support/api.ts'
import { DeploymentError } from '../../../lib/errors.ts'
import { Secret } from '../../../lib/secret.ts'
import type { Probe, Task, Workload } from '../../runtime.ts'
import { describePullSecrets, describeSecret, type Place, type PullLogin, secretNameOf } from './describe.ts'
import { partBytes } from './large-files.ts'
import { describeOutputs } from './outputs.ts'
import { describeController, describeEnvironment, describeService, describeTaskParts } from './service.ts'
import { describeTask } from './task.ts'

const place: Place = { ownerId: 'owner', canPause: true, runAs: null }
const ids = { organizationId: 'org', environmentId: 'env', serviceId: 'svc' }
const ownLabels = {
  'slipway.owner': 'owner',
  'slipway.organization': 'org',
  'slipway.environment': 'env',
  'slipway.service': 'svc',
}
const selector = { 'slipway.service': 'svc', 'slipway.role': 'instance' }

const workloadOf = (over: Partial<Workload> = {}): Workload => ({
  artifact: 'image',
  ...ids,
  projectId: 'project',
  revision: 'rev',
  aliases: ['web', 'not_a_name'],
  image: 'registry.test/team/app@sha256:00',
  entrypoint: null,
  arguments: null,
  env: new Secret({}),
  files: new Secret([]),
  cpuMillicores: 250,
  memoryMb: 128,
  instances: 2,
  ports: [{ internalPort: 8080, protocol: 'HTTP', publiclyAccessible: true }],
  volumes: [],
  readiness: null,
  liveness: null,
  readyTimeoutMs: 60_000,
  stopGraceMs: 10_000,
  ...over,
})

const amounts = { cpu: '250m', memory: '128Mi' }
const security = { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } }
const probe = (check: Probe['check'], over: Partial<Probe> = {}): Probe => ({
  ...{ check, initialDelaySeconds: 3, periodSeconds: 4, timeoutSeconds: 5, successThreshold: 2, failureThreshold: 6 },
  ...over,
})

const plainContainer = {
  name: 'main',
  image: 'registry.test/team/app@sha256:00',
  imagePullPolicy: 'IfNotPresent',
  env: [],
  resources: { requests: amounts, limits: amounts },
  securityContext: { ...security, readOnlyRootFilesystem: false },
  volumeMounts: [],
  ports: [{ containerPort: 8080, protocol: 'TCP' }],
  startupProbe: { tcpSocket: { port: 8080 }, periodSeconds: 1, timeoutSeconds: 3, failureThreshold: 120 },
  lifecycle: { preStop: { sleep: { seconds: 5 } } },
}

const plainPod = {
  automountServiceAccountToken: false,
  enableServiceLinks: false,
  shareProcessNamespace: true,
  imagePullSecrets: [],
  securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
  volumes: [],
  terminationGracePeriodSeconds: 15,
  topologySpreadConstraints: [
    {
      maxSkew: 1,
      topologyKey: 'kubernetes.io/hostname',
      whenUnsatisfiable: 'ScheduleAnyway',
      labelSelector: { matchLabels: selector },
    },
  ],
  containers: [plainContainer],
}

const plainDeployment = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 's-svc', namespace: 'slipway-env', labels: { ...ownLabels, 'slipway.revision': 'rev' } },
  spec: {
    replicas: 2,
    revisionHistoryLimit: 2,
    minReadySeconds: 0,
    selector: { matchLabels: selector },
    template: {
      metadata: {
        labels: { ...ownLabels, ...selector, 'slipway.revision': 'rev' },
        annotations: { 'slipway.ports': '[8080]' },
      },
      spec: plainPod,
    },
    strategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 0, maxSurge: '25%' } },
  },
}

test('a plain service is a Deployment that never has fewer instances than wanted', () => {
  assert.deepEqual(describeController(workloadOf(), place, []), plainDeployment)
})

const partsOf = (over: Partial<Workload>, at = place) => {
  const { kind, spec } = describeController(workloadOf(over), at, ['pull'])
  const its = spec as Json
  return {
    kind,
    spec: its,
    pod: its.template.spec,
    container: its.template.spec.containers[0],
    meta: its.template.metadata,
  }
}

test('commands are what they are on other engines: nothing in them is expanded', () => {
  const { container, pod } = partsOf({ entrypoint: ['sh', '-c', 'echo $(date) $HOME $$'], arguments: ['$(A)'] })
  assert.deepEqual(container.command, ['sh', '-c', 'echo $$(date) $$HOME $$$$'])
  assert.deepEqual(container.args, ['$$(A)'])
  assert.deepEqual(pod.imagePullSecrets, [{ name: 'pull' }])
})

test('probes of every kind, hooks and a read-only root become what Kubernetes has for them', () => {
  const http = { kind: 'http', port: 8080, path: '/ready', scheme: 'HTTPS' } as const
  const times = { initialDelaySeconds: 3, periodSeconds: 4, timeoutSeconds: 5, failureThreshold: 6 }
  const { container, pod } = partsOf({
    readiness: probe(http),
    liveness: probe({ kind: 'exec', command: ['check'] }),
    postStart: ['begin'],
    preStop: ['end'],
    readOnlyRoot: true,
  })
  assert.deepEqual(container.readinessProbe, {
    httpGet: { path: '/ready', port: 8080, scheme: 'HTTPS' },
    ...times,
    successThreshold: 2,
  })
  assert.deepEqual(container.livenessProbe, { exec: { command: ['check'] }, ...times, successThreshold: 1 })
  assert.equal(container.startupProbe, undefined)
  assert.deepEqual(container.lifecycle, {
    postStart: { exec: { command: ['begin'] } },
    preStop: { exec: { command: ['end'] } },
  })
  assert.equal(pod.terminationGracePeriodSeconds, 10)
  assert.equal(container.securityContext.readOnlyRootFilesystem, true)
  const grpc = partsOf({ readiness: probe({ kind: 'grpc', port: 9, service: '' }) }).container.readinessProbe
  assert.deepEqual(grpc, { grpc: { port: 9, service: '' }, ...times, successThreshold: 2 })
  const eager = partsOf({ readiness: probe({ kind: 'tcp', port: 9 }), eagerReadiness: true }).container
  assert.equal(eager.readinessProbe, undefined)
  assert.partialDeepStrictEqual(eager.startupProbe, { tcpSocket: { port: 9 }, periodSeconds: 1 })
})

test('an older cluster is asked for no pause that it does not know, and what has no port is only seen to stay up', () => {
  const { container, pod } = partsOf({}, { ...place, canPause: false })
  assert.equal(container.lifecycle, undefined)
  assert.equal(pod.terminationGracePeriodSeconds, 10)
  const { securityContext } = partsOf({}, { ...place, runAs: 7 }).pod
  assert.deepEqual([securityContext.runAsUser, securityContext.runAsGroup, securityContext.runAsNonRoot], [7, 7, true])
  const { spec, container: silent } = partsOf({ ports: [] })
  assert.equal(spec.minReadySeconds, 2)
  assert.equal(silent.startupProbe, undefined)
})

test('variables and files come from a Secret of their own, whose name changes with its content', () => {
  const content = { env: new Secret({ KEY: 'value' }), files: new Secret([{ path: '/etc/app.conf', content: 'text' }]) }
  const workload = workloadOf(content)
  const name = secretNameOf(workload, place)
  assert.match(name, /^s-svc-[0-9a-f]{12}$/)
  assert.deepEqual(describeSecret(workload, place), {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name, namespace: 'slipway-env', labels: ownLabels },
    type: 'Opaque',
    immutable: true,
    data: { 'env.KEY': 'dmFsdWU=', 'file.0': 'dGV4dA==' },
  })
  const { container, pod } = partsOf(content)
  assert.deepEqual(container.env, [{ name: 'KEY', valueFrom: { secretKeyRef: { name, key: 'env.KEY' } } }])
  assert.deepEqual(container.volumeMounts, [
    { name: 'files', mountPath: '/etc/app.conf', subPath: 'file.0', readOnly: true },
  ])
  assert.deepEqual(pod.volumes, [{ name: 'files', secret: { secretName: name, defaultMode: 0o444 } }])
  assert.ok(!JSON.stringify(describeController(workload, place, [])).includes('value"'))
  assert.notEqual(secretNameOf(workloadOf({ ...content, env: new Secret({ KEY: 'other' }) }), place), name)
  assert.equal(describeSecret(workloadOf(), place), null)
  const large = workloadOf({ files: new Secret([{ path: '/x', content: 'x'.repeat(1_000_000) }]) })
  assert.throws(
    () => describeSecret(large, place),
    (error) => error instanceof DeploymentError && error.code === 'configuration_too_large',
  )
})

test('words of owners are annotations, and labels where they can be, but never ours or those of Kubernetes', () => {
  const labels = { 'team.io/x': 'a b', team: 'blue', 'slipway.owner': 'me', 'k8s.io/x': '1', 'a/b/c': '2' }
  const { meta } = partsOf({ labels })
  assert.deepEqual(meta.annotations, { 'team.io/x': 'a b', team: 'blue', 'slipway.ports': '[8080]' })
  assert.deepEqual(meta.labels, { team: 'blue', ...ownLabels, ...selector, 'slipway.revision': 'rev' })
})

test('with volumes it is a StatefulSet over claims of their own; with Recreate the old one ends first', () => {
  const { kind, spec, pod, container } = partsOf({ volumes: [{ id: 'data', mountPath: '/data', sizeGb: 3 }] })
  assert.equal(kind, 'StatefulSet')
  assert.deepEqual([spec.serviceName, spec.podManagementPolicy], ['s-svc', 'Parallel'])
  assert.deepEqual(pod.volumes, [{ name: 'v-data', persistentVolumeClaim: { claimName: 'v-data' } }])
  assert.deepEqual(container.volumeMounts, [{ name: 'v-data', mountPath: '/data' }])
  assert.equal(pod.securityContext.fsGroup, 10_001)
  assert.deepEqual(partsOf({ recreate: true }).spec.strategy, { type: 'Recreate' })
})

test('an environment is a namespace of the restricted level, which only its own pods reach', () => {
  const own = { 'slipway.owner': 'owner', 'slipway.organization': 'org', 'slipway.environment': 'env' }
  assert.deepEqual(describeEnvironment(ids, place), [
    {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: {
        name: 'slipway-env',
        labels: {
          ...own,
          'pod-security.kubernetes.io/enforce': 'restricted',
          'pod-security.kubernetes.io/warn': 'restricted',
          'pod-security.kubernetes.io/audit': 'restricted',
        },
      },
    },
    {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata: { name: 'environment', namespace: 'slipway-env', labels: own },
      spec: {
        podSelector: {},
        policyTypes: ['Ingress', 'Egress'],
        ingress: [{ from: [{ podSelector: {} }] }],
        egress: [
          {
            to: [
              { namespaceSelector: {} },
              { ipBlock: { cidr: '0.0.0.0/0', except: ['169.254.169.254/32', '169.254.170.2/32'] } },
              { ipBlock: { cidr: '::/0', except: ['fd00:ec2::254/128'] } },
            ],
          },
        ],
      },
    },
  ])
})

test('what a service has beside its pods, in the order in which it is made', () => {
  const scaling = { min: 2, max: 5, cpuPercent: 70, sleeps: false }
  const login = new Secret({ username: 'me', password: 'secret' })
  const workload = workloadOf({ scaling, volumes: [{ id: 'data', mountPath: '/data', sizeGb: 3 }] })
  const all = describeService(workload, place, [{ repository: 'registry.test/team/app', login }])
  const metadata = { name: 's-svc', namespace: 'slipway-env', labels: ownLabels }
  const service = {
    type: 'ClusterIP',
    selector,
    ports: [{ name: 'tcp-8080', port: 8080, targetPort: 8080, protocol: 'TCP' }],
  }
  const [claim, pull, policy, first, second, disruption, controller, autoscaler, ...rest] = all
  assert.deepEqual(rest, [])
  assert.deepEqual(claim, {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name: 'v-data', namespace: 'slipway-env', labels: { ...ownLabels, 'slipway.volume': 'data' } },
    spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '3Gi' } } },
  })
  assert.match(pull!.metadata.name, /^s-svc-pull-/)
  assert.deepEqual(policy, {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata,
    spec: {
      podSelector: { matchLabels: selector },
      policyTypes: ['Ingress'],
      ingress: [{ ports: [{ port: 8080, protocol: 'TCP' }] }],
    },
  })
  assert.deepEqual(first, { apiVersion: 'v1', kind: 'Service', metadata, spec: service })
  assert.deepEqual(second, { apiVersion: 'v1', kind: 'Service', metadata: { ...metadata, name: 'web' }, spec: service })
  assert.deepEqual(disruption, {
    apiVersion: 'policy/v1',
    kind: 'PodDisruptionBudget',
    metadata,
    spec: { maxUnavailable: 1, selector: { matchLabels: selector } },
  })
  assert.equal(controller!.kind, 'StatefulSet')
  assert.equal('replicas' in (controller!.spec as object), false)
  assert.deepEqual(autoscaler, {
    apiVersion: 'autoscaling/v2',
    kind: 'HorizontalPodAutoscaler',
    metadata,
    spec: {
      scaleTargetRef: { apiVersion: 'apps/v1', kind: 'StatefulSet', name: 's-svc' },
      minReplicas: 2,
      maxReplicas: 5,
      metrics: [
        { type: 'Resource', resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization: 70 } } },
      ],
    },
  })
})

test('logins of registries are immutable secrets of the workload or the execution, named by their content', () => {
  const loginOf = (password: string): PullLogin => ({
    repository: 'registry.test:5000/team/app',
    login: new Secret({ username: 'me', password }),
  })
  const [secret, ...others] = describePullSecrets(ids, place, [loginOf('one'), loginOf('one')])
  assert.deepEqual(others, [], 'the same login once')
  const { name } = secret!.metadata
  assert.match(name, /^s-svc-pull-[0-9a-f]{12}$/)
  const auths = {
    'registry.test:5000/team/app': { username: 'me', password: 'one', auth: Buffer.from('me:one').toString('base64') },
  }
  assert.deepEqual(secret, {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name, namespace: 'slipway-env', labels: ownLabels },
    type: 'kubernetes.io/dockerconfigjson',
    immutable: true,
    data: { '.dockerconfigjson': Buffer.from(JSON.stringify({ auths })).toString('base64') },
  })
  const [changed] = describePullSecrets(ids, place, [loginOf('two')])
  assert.notEqual(changed!.metadata.name, name)
  const [ofTask] = describePullSecrets({ ...ids, taskId: 'run' }, place, [loginOf('one')])
  assert.match(ofTask!.metadata.name, /^t-run-pull-/)
  assert.equal(ofTask!.metadata.labels?.['slipway.task'], 'run')
  const all = describeService(workloadOf(), place, [loginOf('one'), loginOf('two')])
  const controller = all.find(({ kind }) => kind === 'Deployment') as Json
  assert.deepEqual(
    controller.spec.template.spec.imagePullSecrets.map((each: Json) => each.name),
    [name, changed!.metadata.name],
  )
  assert.deepEqual(describePullSecrets(ids, place, []), [])
})

test('an execution is a Job that begins once, ends in its time and leaves one small file', () => {
  const task: Task = {
    ...ids,
    taskId: 'run',
    image: 'image',
    entrypoint: ['job'],
    arguments: null,
    env: new Secret({}),
    files: new Secret([]),
    volumes: [],
    outputs: [{ path: '/out/left', maxBytes: 1024 }],
    cpuMillicores: 250,
    memoryMb: 128,
    timeoutMs: 90_500,
    attempt: 2,
  }
  const own = {
    ...ownLabels,
    'slipway.role': 'task',
    'slipway.revision': 'run',
    'slipway.task': 'run',
    'slipway.attempt': '2',
  }
  assert.deepEqual(describeTask(task, place, [], true), {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: { name: 't-run', namespace: 'slipway-env', labels: own },
    spec: {
      suspend: true,
      backoffLimit: 0,
      completions: 1,
      parallelism: 1,
      template: {
        metadata: { labels: own, annotations: {} },
        spec: {
          automountServiceAccountToken: false,
          enableServiceLinks: false,
          shareProcessNamespace: true,
          imagePullSecrets: [],
          securityContext: plainPod.securityContext,
          volumes: [],
          restartPolicy: 'Never',
          activeDeadlineSeconds: 91,
          terminationGracePeriodSeconds: 10,
          containers: [
            {
              name: 'main',
              image: 'image',
              imagePullPolicy: 'IfNotPresent',
              command: ['job'],
              env: [],
              resources: plainContainer.resources,
              securityContext: plainContainer.securityContext,
              volumeMounts: [],
              terminationMessagePath: '/out/left',
            },
          ],
        },
      },
    },
  })
  assert.deepEqual(describeOutputs(task, place, []), [])
  assert.equal(secretNameOf({ ...workloadOf(), taskId: 'run' }, place).startsWith('t-run-'), true)
})

test('what leaves several files has a claim for them, and a Job that waits in it with no secret of the execution', () => {
  const content = `${'ä'.repeat(partBytes / 2)}end`
  const task: Task = {
    ...ids,
    ...{ taskId: 'run', image: 'image', entrypoint: ['/bin/tool'], arguments: ['apply'] },
    env: new Secret({ TOKEN: 'secret' }),
    files: new Secret([
      { path: '/in/small', content: 'small' },
      { path: '/in/state', content },
    ]),
    volumes: [],
    outputs: [
      { path: '/out/state', maxBytes: 2 ** 25 },
      { path: '/out/told', maxBytes: 2 ** 20 },
      { path: '/other/told', maxBytes: 2 ** 20, isAlternative: true },
    ],
    ...{ cpuMillicores: 250, memoryMb: 128, timeoutMs: 60_000 },
    withoutRoot: { user: 10_001, env: { HOME: '/tmp' } },
  }
  const [claim, collector, ...others] = describeOutputs(task, place, ['pull']) as Json[]
  assert.deepEqual(others, [])
  const own = { ...ownLabels, 'slipway.task': 'run' }
  assert.deepEqual(claim, {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name: 't-run', namespace: 'slipway-env', labels: own },
    spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } },
  })
  const user = { runAsUser: 10_001, runAsGroup: 10_001, fsGroup: 10_001, fsGroupChangePolicy: 'OnRootMismatch' }
  const left = { name: 'left', persistentVolumeClaim: { claimName: 't-run' } }
  const work = { name: 'work', emptyDir: { sizeLimit: '10Gi' } }
  const mounts = [
    { name: 'left', mountPath: '/out' },
    { name: 'work', mountPath: '/tmp' },
  ]
  const few = { cpu: '50m', memory: '32Mi' }
  const collecting = { ...own, 'slipway.role': 'collector' }
  assert.deepEqual(collector, {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: { name: 'c-run', namespace: 'slipway-env', labels: collecting },
    spec: {
      ...{ suspend: true, backoffLimit: 100, completions: 1, parallelism: 1 },
      template: {
        metadata: { labels: collecting },
        spec: {
          automountServiceAccountToken: false,
          enableServiceLinks: false,
          shareProcessNamespace: true,
          imagePullSecrets: [{ name: 'pull' }],
          securityContext: { ...plainPod.securityContext, ...user },
          volumes: [left, work],
          restartPolicy: 'Never',
          terminationGracePeriodSeconds: 1,
          containers: [
            {
              name: 'main',
              image: 'image',
              imagePullPolicy: 'IfNotPresent',
              command: ['sleep', '2147483647'],
              env: [{ name: 'HOME', value: '/tmp' }],
              resources: { requests: few, limits: few },
              securityContext: plainContainer.securityContext,
              volumeMounts: mounts,
            },
          ],
        },
      },
    },
  })
  const { spec } = (describeTask(task, place, ['pull'], true) as Json).spec.template
  const [first, second, small] = describeTaskParts(task, place, []) as Json[]
  const names = [first, second].map((each) => each!.metadata.name)
  const sources = names.map((name, index) => ({ secret: { name, items: [{ key: 'part', path: `00${index}` }] } }))
  assert.deepEqual(spec.volumes, [
    { name: 'files', secret: { secretName: small!.metadata.name, defaultMode: 0o444 } },
    { name: 'parts-0', projected: { defaultMode: 0o444, sources } },
    left,
    work,
  ])
  assert.deepEqual(spec.containers[0].volumeMounts, [
    { name: 'files', mountPath: '/in/small', subPath: 'file.0', readOnly: true },
    { name: 'parts-0', mountPath: '/in/state.parts', readOnly: true },
    ...mounts,
  ])
  assert.deepEqual(spec.securityContext, { ...plainPod.securityContext, ...user })
  assert.equal(spec.containers[0].terminationMessagePath, undefined)
  const parts = [first, second].map((each) => Buffer.from(each!.data.part, 'base64'))
  assert.deepEqual([parts[0]!.length, Buffer.concat(parts).toString()], [partBytes, content])
  assert.ok(!JSON.stringify([claim, collector, describeTask(task, place, [], true)]).includes('secret":"'))
})
