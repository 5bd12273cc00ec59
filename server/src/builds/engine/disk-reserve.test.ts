import assert from 'node:assert/strict'
import { test } from 'node:test'
import { standIn } from '../../../test/support/stand-in.ts'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { createDiskReserve, stoppedPull } from './disk-reserve.ts'

const engine = standIn<Engine>({ call: async () => ({ DockerRootDir: '/docker' }) })
const never = new AbortController().signal
const usual = { engine, isLocal: true, reserveMb: 100 }

const untilAborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))

test('a step that fills the disk is ended with a sentence', async () => {
  const left = [500, 99]
  const disk = createDiskReserve({ ...usual, free: async () => left.shift() ?? 99 })
  await assert.rejects(disk.watch(untilAborted, never), (error: unknown) => {
    assert.ok(error instanceof DeploymentError)
    assert.match(error.message, /less than 100 MB.*SLIPWAY_DISK_RESERVE_MB/)
    return true
  })
})

test('no step begins on a full disk', async () => {
  const disk = createDiskReserve({ ...usual, free: async () => 99 })
  await assert.rejects(
    disk.watch(async () => assert.fail('it began'), never),
    /less than 100 MB/,
  )
})

test('a pull is refused with a sentence of its own', async () => {
  const disk = createDiskReserve({ ...usual, refusal: stoppedPull, free: async () => 99 })
  const begin = disk.watch(async () => assert.fail('it began'), never)
  await assert.rejects(begin, { code: 'disk_full', message: /^The image was not pulled: .*less than 100 MB/ })
})

test('what cannot be seen, or is not asked for, ends nothing', async () => {
  for (const more of [{ free: async () => null }, { isLocal: false }, { reserveMb: 0, free: async () => 0 }])
    assert.equal(await createDiskReserve({ ...usual, ...more }).watch(async () => 'done', never), 'done')
})
