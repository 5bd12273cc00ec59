import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { after, test } from 'node:test'
import { startGitServer } from '../../../test/support/peers/git-server.ts'
import { until } from '../../../test/support/until.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { createLog } from '../../lib/log.ts'
import { createOutbound } from '../../lib/net/outbound.ts'
import { systemClock } from '../../lib/time/clock.ts'
import { removeGitPlace } from '../git/place.ts'
import { createSources } from '../sources.ts'

const never = new AbortController().signal
const server = await startGitServer()
const dataDir = mkdtempSync(join(tmpdir(), 'slipway-prepared-'))
const sources = createSources({
  dataDir,
  network: createOutbound({ allow: ['loopback'] }),
  log: createLog('silent'),
  clock: systemClock,
  concurrency: 1,
})
const preparation = sources.prepare()
after(async () => {
  await preparation.close()
  await sources.close()
  await server.close()
  await removeGitPlace(dataDir)
  rmSync(dataDir, { recursive: true, force: true })
})

await server.createRepository('plain')
await server.commit('plain', { Dockerfile: 'FROM scratch\nARG A\n', large: Buffer.alloc(8 * 2 ** 20, 'x') }, 'plain')
/** Takes seconds to scan. */
const folder = 'a'.repeat(200)
const files = Object.fromEntries(Array.from({ length: 300 }, (_, index) => [`${folder}/${folder}${index}`, '']))
await server.createRepository('heavy')
await server.commit(
  'heavy',
  { ...files, Dockerfile: 'FROM scratch\n', '.dockerignore': `**/${'*a'.repeat(160)}Z\n`.repeat(150) },
  'heavy',
)

const read = async (organizationId: string, name: string, signal = never) => {
  const source = { organizationId, url: server.url(name), branch: 'main' }
  const { git_commit_id: commitId } = await sources.fetch(source, signal)
  return preparation.read({ source, commitId, rootPath: '/', dockerfilePath: 'Dockerfile' }, signal)
}

const open = async (organizationId: string, name: string, signal = never) => {
  const { tree } = await read(organizationId, name)
  const own = { name: 'Dockerfile', text: 'FROM scratch\n' }
  return (await preparation.context(tree, own, signal)).tar
}

/** Processes that read the mirrors of this test. */
const gitsNow = (): string[] =>
  readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'latin1')
      } catch {
        return ''
      }
    })
    .filter((command) => command.includes('cat-file') || command.includes('archive') || command.includes('ls-tree'))
    .filter((command) => command.includes('/mirrors/') && command.includes('--git-dir'))

test('what is prepared is read and parsed, and the same is not read twice', async () => {
  const first = await read('one', 'plain')
  assert.deepEqual(first.dockerfile.stages.length, 1)
  assert.equal(first.tree.dockerfile.toString(), 'FROM scratch\nARG A\n')
  assert.equal(await read('one', 'plain'), first)
  assert.notEqual(await read('two', 'plain'), first)
})

test('an organization whose preparations take long never holds all threads', async () => {
  await Promise.all([read('one', 'heavy'), read('two', 'plain')])
  const control = new AbortController()
  let ended = 0
  const heavy = Array.from({ length: 6 }, () =>
    open('one', 'heavy', control.signal)
      .catch(() => {})
      .finally(() => {
        ended += 1
      }),
  )
  await buffer(await open('two', 'plain'))
  assert.equal(ended, 0, 'the others are still at it')
  control.abort(new Error('enough'))
  await Promise.all(heavy)
})

test('a preparation that is given up rejects at once with the reason, and its thread works on', async () => {
  for (let time = 0; time < 4; time += 1) {
    const control = new AbortController()
    const reason = new Error(`given up ${time}`)
    const waiting = open('one', 'heavy', control.signal)
    setImmediate(() => control.abort(reason))
    await assert.rejects(waiting, (error) => error === reason)
  }
  assert.ok((await buffer(await open('two', 'plain'))).length > 8 * 2 ** 20)
})

test('a context whose reader is gone ends, and no git of it is left', async () => {
  for (let time = 0; time < 4; time += 1) {
    const tar = await open('two', 'plain')
    await new Promise((resolve) => tar.once('data', resolve))
    tar.destroy()
  }
  await until(() => gitsNow().length === 0, { timeoutMs: 30_000, what: 'the end of every git' })
  assert.ok((await buffer(await open('two', 'plain'))).length > 8 * 2 ** 20)
})

test('who cannot read a commit learns no more than that', async () => {
  const source = { organizationId: 'three', url: server.url('plain'), branch: 'main' }
  const { tree } = await read('one', 'plain')
  const what = { source, commitId: tree.treeId, rootPath: '/', dockerfilePath: 'Dockerfile' }
  const missing = (error: unknown) => error instanceof DeploymentError && error.code === 'git_ref_missing'
  await assert.rejects(preparation.read(what, never), missing)
  await sources.fetch(source, never)
  await assert.rejects(preparation.read(what, never), missing, 'a tree is no commit')
})
