import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { startGitServer } from '../../../test/support/peers/git-server.ts'
import { untilAborted } from '../../lib/concurrency/waiting.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { createLog } from '../../lib/log.ts'
import { createOutbound } from '../../lib/net/outbound.ts'
import { systemClock } from '../../lib/time/clock.ts'
import { createMirrors } from '../mirrors/mirrors.ts'
import { createMirrorRoom, type RoomLimits } from './mirror-room.ts'
import { openGitPlace, removeGitPlace } from './place.ts'
import { createGit } from './process.ts'

const never = new AbortController().signal
const server = await startGitServer()
const dataDir = mkdtempSync(join(tmpdir(), 'slipway-room-'))
const place = await openGitPlace(dataDir, createLog('silent'))
after(async () => {
  await server.close()
  await removeGitPlace(dataDir)
  rmSync(dataDir, { recursive: true, force: true })
})

/** Two repositories of 6 MB each. */
for (const name of ['first', 'second']) {
  await server.createRepository(name)
  await server.commit(name, { file: randomBytes(6 * 2 ** 20) }, name)
}

await server.createRepository('small')
await server.commit('small', { file: 'small' }, 'small')

const open = (room: Partial<RoomLimits>) =>
  createMirrors({
    ...{ git: createGit(place), folder: place.mirrors, template: place.template, clock: systemClock },
    network: createOutbound({ allow: ['loopback'] }),
    log: createLog('silent'),
    room: { organizationMb: 0, reserveMb: 0, sentence: (mb) => `That would be ${mb} MB.`, ...room },
  })

const sourceOf = (organizationId: string, name: string) => ({ organizationId, url: server.url(name), branch: 'main' })

const refused = (code: string, words: RegExp) => (error: unknown) =>
  error instanceof DeploymentError && error.code === code && words.test(error.message)

test('nothing more is fetched for an organization at its limit; another one is not concerned', async () => {
  const mirrors = open({ organizationMb: 5 })
  await open({}).fetch(sourceOf('one', 'first'), never)
  assert.equal(await mirrors.usedMb('one'), 7)
  await assert.rejects(mirrors.fetch(sourceOf('one', 'second'), never), refused('limit_reached', /^That would be 7 MB/))
  assert.equal(await mirrors.usedMb('one'), 7)
  await open({ organizationMb: 10 }).fetch(sourceOf('two', 'second'), never)
})

test('what is being fetched ends at the limit of its organization, and when the disk gets full', async () => {
  const folder = mkdtempSync(join(dataDir, 'room-'))
  const remove = async (paths: readonly string[]): Promise<void> => {
    for (const path of paths) rmSync(path, { recursive: true })
  }
  const endless = () => new Promise<never>(() => {})
  const fetching = (owner: string, room: Partial<RoomLimits>, grow: (mirror: string) => void, free?: () => number) => {
    const mirror = join(folder, `${owner}-repository`)
    const limits = { organizationMb: 0, reserveMb: 0, sentence: (mb: number) => `${mb} MB`, ...room }
    const { during } = createMirrorRoom({ git: { remove }, folder, limits, free: async () => free?.() ?? 0 })
    return during(mirror, never, async (signal) => {
      grow(mirror)
      await untilAborted(endless(), signal)
    })
  }
  const write = (mirror: string) => {
    mkdirSync(join(mirror, 'objects'), { recursive: true })
    writeFileSync(join(mirror, 'objects/pack'), Buffer.alloc(3 * 2 ** 20))
  }
  await assert.rejects(fetching('a', { organizationMb: 2 }, write), refused('limit_reached', /^3 MB$/))
  const old = join(folder, 'c-unused')
  write(old)
  utimesSync(old, new Date(0), new Date(0))
  await assert.rejects(fetching('c', { organizationMb: 2 }, write), refused('limit_reached', /^3 MB$/))
  assert.equal(existsSync(old), false, 'what is unused goes first')
  let free = 10 * 2 ** 20
  const fill = () => {
    free = 0
  }
  await assert.rejects(
    fetching('b', { reserveMb: 5 }, fill, () => free),
    refused('disk_full', /less than 5 MB left/),
  )
})

test('a mirror that was unused for an hour makes room', async () => {
  const mirrors = open({ organizationMb: 5 })
  const [old, small] = [sourceOf('three', 'first'), sourceOf('three', 'small')]
  await open({}).fetch(old, never)
  await assert.rejects(mirrors.fetch(small, never), refused('limit_reached', /MB/))
  const before = new Date(Date.now() - 2 * 3_600_000)
  utimesSync(mirrors.mirrorOf(old), before, before)
  await mirrors.fetch(small, never)
  assert.deepEqual([existsSync(mirrors.mirrorOf(old)), existsSync(mirrors.mirrorOf(small))], [false, true])
})

test('nothing is fetched to a disk whose reserve is used, and what is there can be read', async () => {
  await open({}).fetch(sourceOf('four', 'first'), never)
  const full = open({ reserveMb: 1e9 })
  const known = await full.fetch(sourceOf('four', 'first'), never)
  assert.equal(known.message, 'first')
  await assert.rejects(
    full.fetch(sourceOf('four', 'second'), never),
    refused('disk_full', /less than 1000000000 MB left \(SLIPWAY_DISK_RESERVE_MB\)\.$/),
  )
})

test('mirrors that nothing has used for a while go, and those of deleted organizations; others stay', async () => {
  const mirrors = open({})
  const entries = () => readdirSync(place.mirrors).filter((entry) => /^[0-9a-f]{32}-/.test(entry))
  const mirrorOf = async (organizationId: string): Promise<string> => {
    const source = sourceOf(organizationId, 'small')
    await mirrors.fetch(source, never)
    return mirrors.mirrorOf(source)
  }
  const [fresh, idle, gone] = [await mirrorOf('kept'), await mirrorOf('idle'), await mirrorOf('deleted')]
  const hoursAgo = (hours: number): Date => new Date(Date.now() - hours * 3_600_000)
  const all = entries().map((entry) => join(place.mirrors, entry))
  for (const each of all) utimesSync(each, hoursAgo(5), hoursAgo(5))
  utimesSync(idle, hoursAgo(49), hoursAgo(49))
  const known = ['kept', 'idle', ...['one', 'two', 'three', 'four', 'five']]
  await mirrors.removeOld(known, 48 * 3_600_000, never)
  assert.deepEqual([existsSync(fresh), existsSync(idle), existsSync(gone)], [true, false, false])
  await mirrors.fetch(sourceOf('idle', 'small'), never)
  await mirrorOf('deleted')
  await mirrors.removeOld(known, 48 * 3_600_000, never)
  assert.deepEqual(
    [existsSync(idle), existsSync(gone)],
    [true, true],
    'what was just used stays, also of an unknown one',
  )
})
