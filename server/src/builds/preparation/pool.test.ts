import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { startGitServer } from '../../../test/support/peers/git-server.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { ThreadDeath } from '../../lib/thread-death.ts'
import { systemClock } from '../../lib/time/clock.ts'
import type { GitSource } from '../builder.ts'
import { usualPreparation } from '../preparation-limits.ts'
import type { FromWorker, Job } from './job.ts'
import { createPool, type Lease, type PoolParts } from './pool.ts'
import { createPreparation } from './preparation.ts'

const never = new AbortController().signal
const server = await startGitServer()
await server.createRepository('plain')
const commitId = await server.commit('plain', { Dockerfile: 'FROM scratch\n' }, 'plain')
const home = mkdtempSync(join(tmpdir(), 'slipway-pool-'))
const mirror = await server.git('plain', ['rev-parse', '--absolute-git-dir'])
const read: Job = {
  kind: 'read',
  mirror,
  commitId,
  rootPath: '/',
  dockerfilePath: 'Dockerfile',
  tool: undefined,
  limits: usualPreparation,
}
after(async () => {
  await server.close()
  rmSync(home, { recursive: true, force: true })
})

const withPool = async (more: Partial<PoolParts>, work: (pool: ReturnType<typeof createPool>) => Promise<void>) => {
  const pool = createPool({ git: { home }, size: 4, clock: systemClock, ...more })
  try {
    await work(pool)
  } finally {
    await pool.close()
  }
}

const firstMessage = (lease: Lease, job: Job) => {
  const { promise, resolve } = Promise.withResolvers<FromWorker | ThreadDeath>()
  lease.onMessage(resolve)
  lease.run(job)
  return promise
}

test('a thread that was ended as surplus is not leased', async () => {
  await withPool({}, async (pool) => {
    for (let round = 0; round < 15; round += 1) {
      const leases = await Promise.all(['a', 'a', 'a', 'b'].map((owner) => pool.lease(owner, never)))
      const messages: (FromWorker | ThreadDeath)[] = await Promise.all(leases.map((lease) => firstMessage(lease, read)))
      for (const lease of leases) lease.release()
      assert.deepEqual(
        messages.map(({ kind }) => kind),
        ['read', 'read', 'read', 'read'],
        `round ${round}`,
      )
    }
  })
})

test('a thread that dies says whether it was its memory or this server', async () => {
  await withPool({ heapMb: 4 }, async (pool) => {
    const lease = await pool.lease('a', never)
    assert.deepEqual(await firstMessage(lease, read), { kind: 'died', of: 'memory' })
    lease.release()
  })
  await withPool({}, async (pool) => {
    const lease = await pool.lease('a', never)
    const ended = Promise.withResolvers<unknown>()
    lease.onMessage(ended.resolve)
    await pool.close()
    assert.deepEqual(await ended.promise, { kind: 'died', of: 'ended' })
  })
})

test('the error of a build gives the true reason for which its thread died', async () => {
  const source = { organizationId: 'one', url: server.url('plain'), branch: 'main' } satisfies GitSource
  const request = { source, commitId, rootPath: '/', dockerfilePath: 'Dockerfile' }
  const prepare = async (more: Partial<Parameters<typeof createPreparation>[0]>) => {
    const preparation = createPreparation({
      git: { home },
      mirrorOf: () => mirror,
      threads: 3,
      clock: systemClock,
      ...more,
    })
    return preparation.read(request, never).finally(() => preparation.close())
  }
  const refused = (words: RegExp) => (error: unknown) =>
    error instanceof DeploymentError && error.code === 'build_refused' && words.test(error.message)
  await assert.rejects(prepare({ heapMb: 4 }), refused(/memory limit/))
  assert.equal((await prepare({})).tree.dockerfile.toString(), 'FROM scratch\n')
})
