/** Every kind of manifest against the published schemas of the oldest and the newest Kubernetes that we support. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { published, schemaProblems } from '../../../../test/support/kubernetes/schemas.ts'
import { createTask, createWorkload } from '../../../../test/support/runtimes/conformance.ts'
import { Secret } from '../../../lib/secret.ts'
import type { Probe, Workload } from '../../runtime.ts'
import type { Manifest, Place } from './describe.ts'
import { describeIngresses } from './ingresses.ts'
import { partBytes } from './large-files.ts'
import { describeOutputs } from './outputs.ts'
import { describeEnvironment, describeService, describeTaskParts } from './service.ts'
import { describeTask } from './task.ts'

const program = { image: 'registry.test/app:1', entrypoint: ['run'], arguments: ['$HOME'] }
const probe = (check: Probe['check']): Probe => ({
  ...{ check, initialDelaySeconds: 0, periodSeconds: 1, timeoutSeconds: 1, successThreshold: 1, failureThreshold: 1 },
})
const login = new Secret({ username: 'me', password: 'secret' })
const content = { env: new Secret({ A: 'b' }), files: new Secret([{ path: '/etc/a', content: 'b' }]) }
const volumes = [{ id: 'data', mountPath: '/data', sizeGb: 1 }]

const workloads: Partial<Workload>[] = [
  {},
  { ...content, volumes, readOnlyRoot: true, labels: { team: 'blue' } },
  {
    recreate: true,
    ports: [],
    readiness: probe({ kind: 'exec', command: ['true'] }),
    postStart: ['a'],
    preStop: ['b'],
  },
  {
    instances: 3,
    readiness: probe({ kind: 'http', port: 8080, path: '/', scheme: 'HTTP' }),
    liveness: probe({ kind: 'tcp', port: 8080 }),
  },
  { liveness: probe({ kind: 'grpc', port: 8080, service: 'shop.Orders' }) },
  { scaling: { min: 2, max: 4, cpuPercent: 60, memoryPercent: 70, sleeps: false }, eagerReadiness: true },
  { machineLabels: { disk: 'ssd' }, apart: true, zones: 'DoNotSchedule', surgePercent: 0 },
]

const allOf = (place: Place): Manifest[] => {
  const logins = [{ repository: 'registry.test/app', login }]
  const task = createTask(program, { ...content, volumes, outputs: [{ path: '/out/left', maxBytes: 1 }] })
  const large = createTask(program, {
    files: new Secret([{ path: '/in/state', content: 'x'.repeat(partBytes + 1) }]),
    outputs: ['/out/a', '/out/b'].map((path) => ({ path, maxBytes: 1 })),
  })
  const service = createWorkload(program)
  const exposure = {
    hosts: [{ host: 'web.test', internalPort: 8080, protocol: 'HTTP' as const, path: '/a' }],
    ports: [{ externalPort: 53, internalPort: 5353, protocol: 'UDP' as const }],
  }
  return [
    ...describeEnvironment(service, place),
    ...workloads.flatMap((over) => describeService(createWorkload(program, over), place, logins)),
    ...describeTaskParts(task, place, logins),
    describeTask(task, place, ['pull'], true),
    ...describeTaskParts(large, place, logins),
    ...describeOutputs(large, place, ['pull']),
    describeTask(large, place, ['pull'], true),
    ...describeIngresses({ service, revision: service.revision, exposure }, place).manifests,
    ...throughGateway(place),
  ]
}

const throughGateway = (place: Place): Manifest[] => {
  const service = createWorkload(program)
  const exposure = {
    hosts: [
      { host: 'web.test', internalPort: 8080, protocol: 'HTTP' as const },
      { host: 'web.test', internalPort: 8080, protocol: 'HTTP' as const, path: '/a', rewrite: '/b' },
      { host: '*.any.test', internalPort: 50_051, protocol: 'GRPC' as const },
    ],
    ports: [],
    policy: { sticky: true as const },
  }
  const gateway = { name: 'main', namespace: 'ingress', sectionName: 'https', keepsClients: place.canPause }
  return describeIngresses({ service, revision: service.revision, exposure }, { ...place, ingress: { gateway } })
    .manifests
}

test('every manifest is valid for the oldest and the newest Kubernetes, without a field that one of them drops', () => {
  for (const version of Object.keys(published)) {
    const place: Place = { ownerId: 'owner', canPause: version !== 'v1.28', runAs: 10_001 }
    const all = allOf(place)
    assert.deepEqual(
      all.flatMap((manifest) => schemaProblems(version, manifest)),
      [],
      version,
    )
    assert.equal(new Set(all.map(({ kind }) => kind)).size, 13)
  }
})

test('what only the experimental channel of the Gateway API has is asked of clusters that say so alone', () => {
  const place: Place = { ownerId: 'owner', canPause: true, runAs: null }
  const all = throughGateway(place).flatMap((manifest) => schemaProblems('v1.28', manifest))
  assert.deepEqual(
    all.map((problem) => problem.replace(/^.*\//, '')),
    Array(3).fill('sessionPersistence: unknown'),
  )
})

test('a schema notices a field that is unknown, missing or of another type', () => {
  const [namespace] = describeEnvironment(createWorkload(program), { ownerId: 'owner', canPause: true, runAs: null })
  const wrong = { ...namespace!, spec: { finalizers: 'none', more: 1 } }
  assert.deepEqual(schemaProblems('v1.35', wrong), [
    'Namespace/spec/finalizers: string instead of array',
    'Namespace/spec/more: unknown',
  ])
  const [deployment] = describeService(
    createWorkload(program, { ports: [] }),
    { ownerId: 'o', canPause: true, runAs: null },
    [],
  )
  const { selector: _, ...spec } = deployment!.spec as Record<string, unknown>
  assert.deepEqual(schemaProblems('v1.28', { ...deployment!, spec }), ['Deployment/spec/selector: missing'])
  const paused = describeService(createWorkload(program), { ownerId: 'o', canPause: true, runAs: null }, [])
  assert.match(paused.flatMap((each) => schemaProblems('v1.28', each)).join(), /preStop\/sleep: unknown/)
})
