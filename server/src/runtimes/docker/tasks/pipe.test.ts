import assert from 'node:assert/strict'
import { createHash, randomUUID } from 'node:crypto'
import { after, before, test } from 'node:test'
import { busyboxImage, ensureBusybox } from '../../../../test/support/docker/busybox-image.ts'
import { engine } from '../../../../test/support/docker/docker.ts'
import { until } from '../../../../test/support/until.ts'
import { createLog } from '../../../lib/log.ts'
import { Secret } from '../../../lib/secret.ts'
import type { PipedTask, Pipes } from '../../pipes.ts'
import { createDockerRuntime } from '../docker.ts'

const ownerId = `pipes-${randomUUID()}`
const runtime = createDockerRuntime({ ownerId, log: createLog('silent') })
const environmentId = randomUUID()
const never = new AbortController().signal

const task = (script: string, more: Partial<PipedTask> = {}): PipedTask => ({
  ...{ organizationId: randomUUID(), environmentId, serviceId: randomUUID(), taskId: randomUUID() },
  ...{ image: busyboxImage, entrypoint: ['sh', '-c', script], arguments: [] },
  ...{ env: new Secret({ WORD: 'secret' }), files: new Secret([]), volumes: [] },
  ...{ cpuMillicores: 500, memoryMb: 64, timeoutMs: 60_000 },
  ...more,
})

const pipe = async (of: PipedTask, pipes: Partial<Pipes> = {}, signal = never) => {
  const lines: string[] = []
  const end = await runtime.pipe(of, { ...pipes, onLine: (line) => lines.push(line) }, signal)
  return { ...end, lines }
}

const left = async (): Promise<unknown[]> => {
  const query = { all: true, filters: JSON.stringify({ label: [`slipway.owner=${ownerId}`] }) }
  return engine.call('GET', '/containers/json', { query })
}

const mebibyte = 1 << 20

async function* zeros(mebibytes: number): AsyncGenerator<Buffer> {
  for (let index = 0; index < mebibytes; index++) yield Buffer.alloc(mebibyte, index)
}

before(async () => void (await ensureBusybox()))

after(async () => {
  await runtime.removeEnvironment(environmentId, never)
  await runtime.close()
  await engine.close()
})

test('what a program reads and writes passes through, its errors come as lines, and nothing of it is left', async () => {
  const hash = createHash('sha256')
  for await (const chunk of zeros(64)) hash.update(chunk)
  const back = createHash('sha256')
  const end = await pipe(task('echo "begun $WORD" >&2; cat; echo over >&2; exit 4'), {
    stdin: zeros(64),
    async stdout(bytes) {
      for await (const chunk of bytes) back.update(chunk)
    },
  })
  assert.deepEqual([end.exitCode, end.timedOut, end.lines], [4, false, ['begun secret', 'over']])
  assert.equal(back.digest('hex'), hash.digest('hex'))
  assert.deepEqual(await left(), [])
})

test('a slow reader slows the program down', async () => {
  let taken = 0
  const open = Promise.withResolvers<void>()
  const written: number[] = []
  const work = runtime.pipe(
    task('i=0; while [ $i -lt 64 ]; do head -c 1048576 /dev/zero; i=$((i+1)); echo $i >&2; done'),
    {
      async stdout(bytes) {
        for await (const chunk of bytes) {
          if (taken === 0) await open.promise
          taken += chunk.length
        }
      },
      onLine: (line) => written.push(Number(line)),
    },
    never,
  )
  await until(async () => ((await left()) as { State: string }[]).some(({ State }) => State === 'running'), {
    what: 'the program to run',
  })
  assert.ok(written.length < 64)
  open.resolve()
  assert.equal((await work).exitCode, 0)
  assert.equal(taken, 64 * mebibyte)
})

test('a program that ends before it has read all ends the call, and so does an input or an output that fails', async () => {
  assert.equal((await pipe(task('head -c 10 >/dev/null; exit 3'), { stdin: zeros(64) })).exitCode, 3)
  async function* failing(): AsyncGenerator<Buffer> {
    yield Buffer.from('some')
    throw new Error('the input broke')
  }
  await assert.rejects(pipe(task('cat >/dev/null; sleep 60'), { stdin: failing() }), /the input broke/)
  const stdout = async () => {
    throw new Error('the output broke')
  }
  await assert.rejects(pipe(task('yes'), { stdout }), /the output broke/)
  assert.deepEqual(await left(), [])
})

test('past its time, and when it is aborted, a program is ended and removed', async () => {
  const end = await pipe(task('exec sleep 600', { timeoutMs: 1500 }))
  assert.deepEqual([end.timedOut, await left()], [true, []])
  const controller = new AbortController()
  const work = pipe(task('exec sleep 600'), {}, controller.signal)
  await until(async () => (await left()).length === 1, { what: 'the program' })
  controller.abort(new Error('no longer wanted'))
  await assert.rejects(work, /no longer wanted/)
  assert.deepEqual(await left(), [])
})

test('an execution that a dead process left is replaced, and one without a network has only itself', async () => {
  const its = task('ls /sys/class/net', { isAlone: true })
  await engine.call('POST', '/containers/create', {
    query: { name: `slipway-task-${its.taskId}` },
    body: {
      Image: busyboxImage,
      Labels: { 'slipway.owner': ownerId, 'slipway.task': its.taskId, 'slipway.service': its.serviceId },
    },
  })
  let text = ''
  await pipe(its, {
    async stdout(bytes) {
      for await (const chunk of bytes) text += Buffer.from(chunk).toString()
    },
  })
  assert.deepEqual([text, await left()], ['lo\n', []])
})
