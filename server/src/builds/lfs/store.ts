/**
 * LFS objects in a mirror: blobs of git, each below a reference that has its LFS id. Promises that no object is stored
 * before its size and digest were compared. A process that dies here leaves a partial pack, which the next use of the
 * mirror removes.
 */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { pipeline } from 'node:stream/promises'
import { clearLeftovers } from '../git/mirror-folder.ts'
import { isCommitId } from '../git/names.ts'
import type { Git, GitTalk } from '../git/process.ts'
import { notTheObject, type Wanted } from './client.ts'

const refPrefix = 'refs/slipway/lfs/'
const downloadMs = 1_800_000
const refsPerCall = 100

/** The blobs of those objects that are in the mirror, by LFS id. */
export const findObjects = async (git: Git, mirror: string, oids: readonly string[]): Promise<Map<string, string>> => {
  const found = new Map<string, string>()
  for (let at = 0; at < oids.length; at += refsPerCall) {
    const refs = oids.slice(at, at + refsPerCall).map((oid) => refPrefix + oid)
    const args = ['--git-dir', mirror, 'for-each-ref', '--format=%(objectname) %(refname)', ...refs]
    const { code, stdout, stderr } = await git.run(args, { maxOutput: 1 << 20 })
    if (code !== 0) throw new Error(`git for-each-ref failed: ${stderr.trim()}`)
    for (const line of stdout.split('\n')) {
      const [id = '', ref = ''] = line.split(' ')
      if (isCommitId(id)) found.set(ref.slice(refPrefix.length), id)
    }
  }
  return found
}

/** The bytes of an object, unchanged; throws at their end if they are not those of its id. */
async function* checked(body: AsyncIterable<Buffer>, { oid, size }: Wanted, onEnd: (blobId: string) => void) {
  const [content, blob] = [createHash('sha256'), createHash('sha1').update(`blob ${size}\0`)]
  let got = 0
  for await (const chunk of body) {
    got += chunk.length
    if (got > size) throw notTheObject()
    content.update(chunk)
    blob.update(chunk)
    yield chunk
  }
  if (got !== size || content.digest('hex') !== oid) throw notTheObject()
  onEnd(blob.digest('hex'))
}

/** Kills the program before its input ends: it would keep the received part of a pack. */
const endAtOnce = async ({ output }: GitTalk): Promise<void> => {
  if (output.closed) return
  output.destroy()
  await once(output, 'close')
}

/** Runs `git fast-import` with a script; nothing is kept if the script throws. */
export const runImport = async (
  git: Git,
  mirror: string,
  script: () => AsyncIterable<Buffer | string>,
  signal: AbortSignal,
  { unpackLimit = 100, force = false } = {},
): Promise<void> => {
  const args = ['--git-dir', mirror, 'fast-import', '--quiet', '--done', ...(force ? ['--force'] : [])]
  const config = [
    ['fastimport.unpackLimit', String(unpackLimit)],
    ['pack.compression', '1'],
  ] as const
  const talk = git.talk(args, { timeoutMs: downloadMs, config })
  const onAbort = () => void talk.output.destroy(signal.reason)
  signal.addEventListener('abort', onAbort, { once: true })
  const ended = talk.output.toArray()
  ended.catch(() => {})
  async function* guarded(): AsyncGenerator<Buffer | string> {
    try {
      yield* script()
      yield 'done\n'
    } catch (error) {
      await endAtOnce(talk)
      throw error
    }
  }
  try {
    signal.throwIfAborted()
    await pipeline(guarded, talk.input)
    await ended
  } catch (error) {
    await endAtOnce(talk)
    await clearLeftovers(git, mirror, new Date(Date.now() + 60_000))
    signal.throwIfAborted()
    throw error
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

/**
 * Downloads objects into one pack of the mirror and names each. `open` is called for one after the other. Returns
 * their blobs by LFS id.
 */
export const storeObjects = async (
  git: Git,
  mirror: string,
  wanted: readonly Wanted[],
  open: (object: Wanted) => Promise<AsyncIterable<Buffer>>,
  signal: AbortSignal,
): Promise<Map<string, string>> => {
  const stored = new Map<string, string>()
  async function* script(): AsyncGenerator<Buffer | string> {
    for (const object of wanted) {
      const body = await open(object)
      yield `blob\ndata ${object.size}\n`
      yield* checked(body, object, (id) => stored.set(object.oid, id))
      yield '\n'
    }
  }
  await runImport(git, mirror, script, signal, { unpackLimit: 1 })
  const lines = [...stored].map(([oid, id]) => `update ${refPrefix}${oid} ${id}\n`).join('')
  const { code, stderr } = await git.run(['--git-dir', mirror, 'update-ref', '--stdin'], { input: lines })
  if (code !== 0) throw new Error(`git update-ref failed: ${stderr.trim()}`)
  return stored
}
