import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Finding } from '../lib/finding.ts'
import { judgeWork, type WorkFacts } from './background-work.ts'
import { judgeBackup } from './backup.ts'
import { type CertificateFacts, judgeCertificates } from './certificates.ts'
import { judgeClock } from './clock.ts'
import { type DatabaseFacts, judgeDatabase } from './database.ts'
import { type DiskFacts, judgeDisks, readDisks } from './disks.ts'
import { judgeClusters, judgeEngine } from './engine.ts'
import { judgeKernel, type KernelFacts } from './kernel.ts'
import { judgeMemory } from './memory.ts'
import { judgeNames, type NameFacts } from './names.ts'
import { judgePorts, type PortFacts } from './ports.ts'
import { judgeRouter } from './router.ts'
import { judgeServers } from './servers.ts'

const mb = 2 ** 20
const now = new Date('2026-06-01T12:00:00Z')

/** Its state and the words that it must have; a problem also says how to mend it, and nothing else does. */
const says = (finding: Finding, state: Finding['state'], ...words: RegExp[]): void => {
  const text = JSON.stringify(finding)
  assert.equal(finding.state, state, text)
  for (const word of words) assert.match(finding.message, word)
  const needsMending = state === 'FAILED' || state === 'WARNING'
  assert.equal(finding.mending !== null, needsMending, text)
  assert.match(finding.message, /^[A-Z0-9].*[.]$/, text)
  if (finding.mending !== null) assert.match(finding.mending, /^[A-Z].*[.]$/, text)
}

const disk = (more: Partial<DiskFacts> = {}): DiskFacts => ({
  ...{ names: ['the data directory'], path: '/data', freeBytes: 100_000 * mb, freeInodes: 900, inodes: 1000 },
  ...more,
})

test('a disk is full, below the reserve, low, or fine; inodes count as well as bytes', () => {
  const reserve = 2048 * mb
  says(judgeDisks([disk({ freeBytes: 10 * mb })], reserve), 'FAILED', /is full: 10 MB/)
  says(judgeDisks([disk({ freeBytes: 2000 * mb })], reserve), 'FAILED', /builds, fetches and pushes are refused/)
  says(judgeDisks([disk({ freeBytes: 3000 * mb })], reserve), 'WARNING', /only 3000 MB left/)
  says(judgeDisks([disk({ freeBytes: 3000 * mb })], 0), 'OK', /3000 MB are free for the data directory/)
  says(judgeDisks([disk({ freeBytes: 500 * mb })], 0), 'WARNING')
  says(judgeDisks([disk({ freeInodes: 50 })], reserve), 'WARNING', /5 % of its inodes/)
  says(judgeDisks([disk({ freeInodes: 5 })], reserve), 'FAILED', /no file can be created/)
  says(judgeDisks([disk({ freeInodes: 0, inodes: 0 })], reserve), 'OK')
  says(judgeDisks([disk(), disk({ freeBytes: 0, path: '/engine' })], reserve), 'FAILED', /\/engine/)
  says(judgeDisks([], reserve), 'SKIPPED')
})

test('places on one disk are one disk, and a place that cannot be read is left out', async () => {
  const room = { bavail: 1000, bsize: 4096, files: 10, ffree: 5 }
  const places = ['/a', '/b', '/c', '/gone'].map((path) => ({ name: `the place ${path}`, path }))
  const found = await readDisks(places, {
    roomOf: async () => room,
    diskOf: async (path) => {
      if (path === '/gone') throw new Error('ENOENT')
      return path === '/c' ? 2 : 1
    },
  })
  assert.deepEqual(
    found.map(({ names, freeBytes }) => [names, freeBytes]),
    [
      [['the place /a', 'the place /b'], 4_096_000],
      [['the place /c'], 4_096_000],
    ],
  )
})

test('an engine that is silent has failed; one that limits nothing is a warning; without one nothing is checked', () => {
  const address = '/var/run/docker.sock'
  const info = { ServerVersion: '20.10.24', MemoryLimit: true, CpuCfsQuota: true }
  says(judgeEngine({ kind: 'docker', info, address }), 'OK', /Docker 20\.10\.24 answers/)
  says(judgeEngine({ kind: 'docker', info: null, address }), 'FAILED', /docker\.sock does not answer/)
  says(judgeEngine({ kind: 'docker', info: { ...info, MemoryLimit: false }, address }), 'WARNING', /memory/)
  says(judgeEngine({ kind: 'fake', info: null, address }), 'SKIPPED', /simulated/)
  says(judgeEngine({ kind: 'none', info: null, address }), 'SKIPPED', /SLIPWAY_DOCKER=off/)
})

test('a cluster in a conflict has failed, one that does not answer is a warning', () => {
  const fine = { name: 'a', answers: true, isHeld: false }
  says(judgeClusters([]), 'SKIPPED')
  says(judgeClusters([fine, { ...fine, name: 'b' }]), 'OK', /All 2 clusters/)
  says(judgeClusters([fine, { ...fine, name: 'b', answers: false }]), 'WARNING', /not answer: b\./)
  says(judgeClusters([{ ...fine, isHeld: true }]), 'FAILED', /Nothing is changed on a/)
})

test('more memory than there is may be promised with a warning, or not beyond the setting', () => {
  const own = { totalMb: 24_000, availableMb: 12_000, swapMb: 0 }
  const machine = { name: 'this machine', promisedMb: 48_000, memoryMb: 24_000, overcommitPercent: 0 }
  says(judgeMemory({ machines: [machine], own }), 'WARNING', /48000 MB are promised .* has 24000 MB/)
  says(judgeMemory({ machines: [{ ...machine, overcommitPercent: 150 }], own }), 'FAILED', /refused/)
  says(judgeMemory({ machines: [{ ...machine, promisedMb: 24_000 }], own }), 'OK', /24000 of 24000 MB/)
  says(judgeMemory({ machines: [], own: { ...own, availableMb: 100 } }), 'WARNING', /100 MB of 24000 MB .*no swap/)
  says(judgeMemory({ machines: [], own: null }), 'SKIPPED')
})

test('a limit of the kernel that is near or too low is named; one that is not reported is not judged', () => {
  const range = { first: 30_000, last: 32_767 }
  const fine: KernelFacts = {
    openFiles: { used: 100, limit: 1_048_576 },
    threads: { used: 800, most: 4_000_000 },
    inotify: { instances: 128, watches: 65_536 },
    outgoing: { first: 32_768, last: 60_999 },
    overcommit: 0,
    conntrack: { used: 10, most: 262_144 },
  }
  says(judgeKernel(fine, range), 'OK')
  const bad: [Partial<KernelFacts>, Finding['state'], RegExp][] = [
    [{ openFiles: { used: 900, limit: 1024 } }, 'FAILED', /900 of 1024 files/],
    [{ openFiles: { used: 10, limit: 1024 } }, 'WARNING', /only 1024 files/],
    [{ threads: { used: 31_000, most: 32_768 } }, 'FAILED', /31000 of 32768 threads/],
    [{ inotify: { instances: 64, watches: 65_536 } }, 'WARNING', /64 inotify instances/],
    [{ outgoing: { first: 1024, last: 65_000 } }, 'WARNING', /SLIPWAY_PORT_RANGE \(30000-32767\)/],
    [{ outgoing: { first: 60_000, last: 61_000 } }, 'WARNING', /Only 1001 ports/],
    [{ overcommit: 2 }, 'WARNING', /overcommit/],
    [{ conntrack: { used: 260_000, most: 262_144 } }, 'FAILED', /drops/],
  ]
  for (const [more, state, words] of bad) says(judgeKernel({ ...fine, ...more }, range), state, words)
  const none = { openFiles: null, threads: null, inotify: null, outgoing: null, overcommit: null, conntrack: null }
  says(judgeKernel(none, range), 'SKIPPED')
})

test('an entrance that does not answer has failed, a port of the range that another program has is a warning', () => {
  const entrance = { name: 'the API', host: '127.0.0.1', port: 8080, setting: 'SLIPWAY_PORT', answers: true }
  const facts: PortFacts = { entrances: [entrance], range: { first: 30_000, last: 32_767 }, foreign: [] }
  says(judgePorts(facts), 'OK', /the API \(8080\)/)
  says(judgePorts({ ...facts, entrances: [{ ...entrance, answers: false }] }), 'FAILED', /127\.0\.0\.1:8080/)
  says(judgePorts({ ...facts, foreign: [30_005, 31_000] }), 'WARNING', /30005 and 31000/)
})

test('names that lead elsewhere, nowhere or cannot be looked up are warnings; without a network none is checked', () => {
  const name = (domain_name: string, status: NameFacts['checked'][number]['status']) => ({
    ...{ domain_name, status, error_details: null },
  })
  const fine = name('a.test', 'MATCHES_LOAD_BALANCER_HOST')
  const facts: NameFacts = { domain: 'test', checked: [fine], late: 0, isOffline: false }
  says(judgeNames({ ...facts, domain: undefined, checked: [] }), 'OK', /localhost/)
  says(judgeNames(facts), 'OK', /leads here/)
  says(judgeNames({ ...facts, checked: [fine, name('b.test', 'DOMAIN_NOT_CONFIGURED')] }), 'WARNING', /for b\.test/)
  says(judgeNames({ ...facts, checked: [fine, name('c.test', 'DOMAIN_LINKED_TO_WRONG_HOST')] }), 'WARNING', /c\.test/)
  says(judgeNames({ ...facts, late: 3 }), 'WARNING', /3 names could not/)
  says(judgeNames({ ...facts, checked: [name('d.test', 'GENERIC_FAILURE')] }), 'SKIPPED', /No name server/)
  says(judgeNames({ ...facts, isOffline: true }), 'SKIPPED', /no network/)
})

test('a certificate that has ended or cannot be ordered has failed; one that ends soon or fails to renew is a warning', () => {
  const day = 86_400_000
  const fine: CertificateFacts = {
    ...{ host: 'a.test', isUploaded: false, problem: null },
    ...{ notBefore: new Date(now.getTime() - 10 * day), notAfter: new Date(now.getTime() + 80 * day) },
  }
  says(judgeCertificates([fine], true, now), 'OK', /1 are served; the first ends on 2026-08-20/)
  says(judgeCertificates([{ ...fine, notAfter: now }], true, now), 'FAILED', /expired: a\.test/)
  const late = { ...fine, notBefore: new Date(now.getTime() - 80 * day), notAfter: new Date(now.getTime() + 10 * day) }
  says(judgeCertificates([late], true, now), 'WARNING', /end soon/)
  const problem = 'The CA does not answer.'
  says(judgeCertificates([{ ...fine, problem }], true, now), 'WARNING', /renewed yet.*does not answer/)
  const missing = { ...fine, notBefore: null, notAfter: null }
  says(judgeCertificates([{ ...missing, problem }], true, now), 'FAILED', /No certificate could be ordered for a\.test/)
  says(judgeCertificates([missing], true, now), 'OK', /1 are being ordered/)
  says(judgeCertificates([fine], false, now), 'SKIPPED')
})

test('a wrong clock has failed by the database, and is a warning by the middle of the registries', () => {
  says(judgeClock({ databaseMs: 10, registriesMs: [] }), 'OK')
  says(judgeClock({ databaseMs: 10_000, registriesMs: [] }), 'WARNING', /10 s behind the database's/)
  says(judgeClock({ databaseMs: -3_600_000, registriesMs: [] }), 'FAILED', /3600 s ahead of/)
  says(judgeClock({ databaseMs: 0, registriesMs: [900_000] }), 'WARNING', /900 s behind that of a registry/)
  says(judgeClock({ databaseMs: 0, registriesMs: [900_000, 0, 1000] }), 'OK')
  says(judgeClock({ databaseMs: null, registriesMs: [] }), 'SKIPPED')
})

test('a database that cannot be written or was not migrated has failed; old transactions and many connections warn', () => {
  const fine: DatabaseFacts = {
    ...{ version: '18.1 (Debian)', bytes: 10 * mb, connections: 5, mostConnections: 200, oldestSeconds: 1, age: 1000 },
    ...{ isReadOnly: false, migrations: { applied: 43, pending: [], unknown: [] } },
  }
  says(judgeDatabase(fine), 'OK', /PostgreSQL 18\.1 with 10 MB, 5 connections and all 43 migrations/)
  says(judgeDatabase({ ...fine, isReadOnly: true }), 'FAILED', /only be read/)
  says(judgeDatabase({ ...fine, connections: 190 }), 'WARNING', /190 of 200/)
  says(judgeDatabase({ ...fine, oldestSeconds: 7200 }), 'WARNING', /120 minutes/)
  says(judgeDatabase({ ...fine, age: 1_900_000_000 }), 'FAILED', /vacuumed/)
  says(judgeDatabase({ ...fine, migrations: { applied: 42, pending: ['0043-x.sql'], unknown: [] } }), 'FAILED', /0043/)
  says(judgeDatabase({ ...fine, migrations: { applied: 44, pending: [], unknown: ['0099-x.sql'] } }), 'FAILED', /newer/)
})

test('no backup, none yet, an old one and a failed one are reported', () => {
  const hoursAgo = (hours: number) => new Date(now.getTime() - hours * 3_600_000)
  says(judgeBackup({ to: undefined, last: null }, now), 'WARNING', /No backup is configured/)
  says(judgeBackup({ to: 's3://b', last: null }, now), 'WARNING', /none has been made/)
  says(judgeBackup({ to: 's3://b', last: undefined }, now), 'SKIPPED', /running server/)
  says(judgeBackup({ to: 's3://b', last: { at: hoursAgo(5), problem: null } }, now), 'OK', /5 hours/)
  says(judgeBackup({ to: 's3://b', last: { at: hoursAgo(72), problem: null } }, now), 'WARNING', /72 hours old/)
  says(judgeBackup({ to: 's3://b', last: { at: hoursAgo(1), problem: 'No space.' } }, now), 'FAILED', /No space/)
})

test('servers that vanished, a router that is silent or lacks hosts, and work that failed last are reported', () => {
  says(judgeServers(null), 'SKIPPED')
  says(judgeServers({ alive: 2, lost: 0 }), 'OK', /All 2/)
  says(judgeServers({ alive: 1, lost: 1 }), 'WARNING', /A server stopped answering/)
  says(judgeServers({ alive: 0, lost: 1 }), 'WARNING', /consider it dead/)
  const logFile = '/data/router/router.log'
  says(judgeRouter({ pid: 7, hosts: 3, missing: [], logFile }), 'OK', /Process 7 serves 3/)
  says(judgeRouter({ pid: null, hosts: 0, missing: [], logFile }), 'FAILED')
  says(judgeRouter({ pid: 7, hosts: 3, missing: ['a.test'], logFile }), 'WARNING', /a\.test/)
  const work = { name: 'sweep', cluster: undefined, runs: 2, failures: 1, active: 0, waiting: 0, lastRunAt: now }
  const error = (at: Date) => ({ at, code: 'ECONNREFUSED' })
  const facts = (at: Date): WorkFacts => [{ ...work, lastError: error(at) }]
  says(judgeWork(facts(now)), 'WARNING', /sweep \(ECONNREFUSED\)/)
  says(judgeWork(facts(new Date(now.getTime() - 1000))), 'OK')
})
