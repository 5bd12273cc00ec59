import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import {
  conform,
  createWorkload,
  deploy,
  deploymentError,
  ignore,
  type Program,
  signal,
  start,
} from '../../../test/support/runtimes/conformance.ts'
import { createFakeRuntime, type FakeRuntime } from './fake.ts'

const program = (image: string, ...words: string[]): Program => ({ image, entrypoint: null, arguments: words })

describe('fake runtime', { concurrency: true }, () => {
  conform({
    create: (ownerId, router) => createFakeRuntime({ ownerId, router }),
    programs: {
      serve: program('any'),
      serveBoth: program('any'),
      distinct: program('any'),
      neverReady: program('fake/never-ready'),
      crash: program('fake/crash:3'),
      talk: program('fake/talk'),
      task: program('fake/crash:3', 'one', 'two'),
      endlessTask: program('fake/slow:70000'),
      writer: program('any', 'show /in/given', 'write /out/left.txt left'),
      keeper: program('any', 'show /in/kept', 'write /in/kept kept'),
      badWriter: program('fake/crash:3', 'write /out/left.txt left'),
      endlessWriter: program('fake/slow:70000', 'write /out/left.txt begun'),
    },
    readiness: {
      check: { kind: 'tcp', port: 8080 },
      initialDelaySeconds: 0,
      periodSeconds: 1,
      timeoutSeconds: 1,
      successThreshold: 1,
      failureThreshold: 1,
    },
    say: (runtime, instance, isReady) => (runtime as FakeRuntime).say(instance, isReady),
    commands: { tell: (line) => ['say', line], fail: ['fail', '3'] },
    images: { held: 'registry.example/team/app:1', missing: 'registry.example/fake/refuse:1' },
  })
})

test('an endpoint of the fake says which service, revision and index it is', async () => {
  const runtime = createFakeRuntime({ ownerId: 'endpoints' })
  const workload = createWorkload(program('any'), { instances: 2 })
  for (const { index, endpoints } of await start(runtime, workload)) {
    const answer = await fetch(`http://127.0.0.1:${endpoints[8080]!.port}/path`, { method: 'POST', body: 'x' })
    assert.deepEqual(await answer.json(), { service: workload.serviceId, revision: workload.revision, index })
  }
  await runtime.close()
})

test('the scripts slow, oom and refuse do what they say, and a script in code comes first', async () => {
  const runtime = createFakeRuntime({
    ownerId: 'scripts',
    script: ({ image }) => (image === 'mine' ? { kind: 'crash', exitCode: 9 } : null),
  })
  const slow = createWorkload(program('fake/slow:200'))
  const begun = performance.now()
  await deploy(runtime, slow)
  assert.ok(performance.now() - begun >= 195)
  const failure = (image: string) => deploymentError(deploy(runtime, createWorkload(program(image))))
  assert.equal((await failure('fake/oom')).code, 'out_of_memory')
  assert.equal((await failure('fake/refuse')).code, 'image_missing')
  assert.match((await failure('mine')).message, /code 9/)
  await runtime.close()
})

test('appended lines reach those who follow', async () => {
  const runtime = createFakeRuntime({ ownerId: 'append' })
  const workload = createWorkload(program('any'))
  await deploy(runtime, workload)
  const lines = runtime.logs(workload, { tail: 0, follow: true })[Symbol.asyncIterator]()
  const next = lines.next()
  runtime.append(workload.serviceId, 'hello', 'stderr')
  const { value } = await next
  assert.partialDeepStrictEqual(value, { text: 'hello', stream: 'stderr', revision: workload.revision })
  await lines.return?.()
  await runtime.close()
})

test('with a folder, the next process serves the same instances on the same ports', async () => {
  const persistFolder = mkdtempSync(join(tmpdir(), 'fake-runtime-'))
  try {
    const first = createFakeRuntime({ ownerId: 'kept', persistFolder })
    const workload = createWorkload(program('any'), { volumes: [{ id: 'v', mountPath: '/v', sizeGb: 1 }] })
    const [before] = await start(first, workload)
    await first.close()
    const second = createFakeRuntime({ ownerId: 'kept', persistFolder })
    const [after] = await second.instances.ready(workload, ignore, signal())
    assert.deepEqual([after!.id, after!.endpoints], [before!.id, before!.endpoints])
    assert.equal((await fetch(`http://127.0.0.1:${after!.endpoints[8080]!.port}/`)).status, 200)
    const owned = await second.owned()
    assert.deepEqual(owned.environments, [workload.environmentId])
    assert.deepEqual(owned.volumes, [{ id: 'v', environmentId: workload.environmentId, serviceId: workload.serviceId }])
    await second.close()
  } finally {
    rmSync(persistFolder, { recursive: true })
  }
})
