/**
 * Pushed objects before they are accepted: a separate bare repository that sees the objects of the real one and adds
 * nothing to it. Promises that only objects that git has checked leave it, completely: as one pack with everything
 * that its new commits need and the repository lacks. A process that dies leaves a folder, which the next start
 * removes.
 */
import { randomBytes } from 'node:crypto'
import { lstat, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { ApiError } from '../../lib/errors.ts'
import { ExecTimeout } from '../../lib/exec.ts'
import type { Commit } from '../builder.ts'
import { maxCommitBytes, parseCommit } from '../git/commit.ts'
import { explainLimits } from '../git/errors.ts'
import { isCommitId } from '../git/names.ts'
import { withObjects } from '../git/objects.ts'
import { type Git, GitFailed, withEnvironment } from '../git/process.ts'
import { changedPaths } from '../mirrors/browse.ts'

const stepMs = 300_000
const mark = '.push-'

export const pushRefused = (message: string): ApiError => new ApiError(400, 'push_refused', message)

export async function* atMost(source: AsyncIterable<Buffer>, maxBytes: number): AsyncGenerator<Buffer> {
  let bytes = 0
  for await (const chunk of source) {
    bytes += chunk.length
    if (bytes > maxBytes) throw tooLarge(maxBytes)
    yield chunk
  }
}

const tooLarge = (maxBytes: number): ApiError =>
  new ApiError(
    413,
    'push_too_large',
    `At most ${Math.floor(maxBytes / 2 ** 20)} MB can be pushed at once (SLIPWAY_PUSH_MAX_MB).`,
  )

const firstLines = (stderr: string): string =>
  stderr
    .split('\n')
    .map((line) => line.replace(/^(?:error|fatal): /, '').trim())
    .filter((line) => line !== '' && !/^(?:fsck error in packed object|index-pack failed)$/.test(line))
    .slice(0, 2)
    .join('; ')
    // The paths of our folders are not shown.
    .replace(/'?\/\S*/g, '…')
    .replace(/\p{Cc}/gu, '')
    .slice(0, 300)

export const explainIntake = (error: unknown, maxBytes: number): unknown => {
  if (error instanceof ExecTimeout) return pushRefused('git needed too long to check what was pushed.')
  if (!(error instanceof GitFailed)) return error
  if (/exceeds maximum allowed size/i.test(error.stderr)) return tooLarge(maxBytes)
  const limited = explainLimits(error.stderr)
  if (limited !== null) return pushRefused(limited.message)
  if (/signal|SIG|timeout/.test(error.message) && error.stderr.trim() === '')
    return pushRefused('git was stopped at a limit of time, memory or size while it checked what was pushed.')
  return pushRefused(`git refused what was pushed: ${firstLines(error.stderr) || 'it is not a valid pack'}.`)
}

/** The object that a new reference will point to. */
interface Target {
  kind: 'commit' | 'tag' | 'other'
  /** The commit itself, or the one of an annotated tag. */
  commitId: string
}

export interface Intake {
  /** Reads a pack and checks all its objects. Rejects with an `ApiError`. */
  receive(pack: AsyncIterable<Buffer>, maxBytes: number, timeoutMs: number): Promise<void>
  /** The commit that a stream of `git fast-import` creates as `refs/slipway/made`. */
  make(stream: AsyncIterable<Buffer>, timeoutMs: number): Promise<string>
  target(objectId: string): Promise<Target | null>
  commit(commitId: string): Promise<Commit>
  changes(from: string, to: string): Promise<string[] | null>
  /**
   * A pack of the objects that `wanted` need besides those of `known`; null if there are none. Fails if anything is
   * missing.
   */
  pack(wanted: readonly string[], known: readonly string[]): AsyncIterable<Buffer>
  remove(): Promise<void>
}

const collect = async (output: Readable): Promise<string> =>
  Buffer.concat(await output.toArray())
    .toString('latin1')
    .trim()

/** Feeds git; its final message explains a broken pipe, unless the source failed by itself. */
const feed = async (source: AsyncIterable<Buffer>, talk: { input: NodeJS.WritableStream; output: Readable }) => {
  let own: unknown = null
  async function* watched(): AsyncGenerator<Buffer> {
    try {
      yield* source
    } catch (error) {
      own = error
      throw error
    }
  }
  const printed = collect(talk.output)
  const sent = pipeline(watched(), talk.input).catch(() => {
    if (own !== null) talk.output.destroy(own as Error)
  })
  const [ended] = await Promise.allSettled([printed, sent])
  if (own !== null) throw own
  if (ended.status === 'rejected') throw ended.reason
  return ended.value
}

const makeFolder = async (git: Git, path: string, template: string): Promise<void> => {
  const { code, stderr } = await git.run(['init', '--quiet', '--bare', `--template=${template}`, path])
  if (code !== 0) throw new Error(`git init failed: ${stderr.trim()}`)
}

export const openIntake = async (git: Git, mirror: string, template: string): Promise<Intake> => {
  const folder = `${mirror}${mark}${randomBytes(6).toString('hex')}`
  await makeFolder(git, folder, template)
  const own = withEnvironment(git, { GIT_ALTERNATE_OBJECT_DIRECTORIES: join(mirror, 'objects') })
  const here = ['--git-dir', folder]

  const target = async (objectId: string): Promise<Target | null> => {
    const names = [objectId, `${objectId}^{commit}`]
    const { code, stdout } = await own.run([...here, 'cat-file', '--batch-check'], { input: `${names.join('\n')}\n` })
    const [first = '', second = ''] = stdout.split('\n')
    const kind = /^[0-9a-f]+ (commit|tag|tree|blob) /.exec(first)?.[1]
    if (code !== 0 || kind === undefined) return null
    const commitId = /^([0-9a-f]+) commit /.exec(second)?.[1]
    if (commitId === undefined) return { kind: 'other', commitId: objectId }
    return { kind: kind === 'tag' ? 'tag' : 'commit', commitId }
  }

  return {
    async receive(pack, maxBytes, timeoutMs) {
      const limits = ['--strict', `--max-input-size=${maxBytes}`]
      const talk = own.talk([...here, 'index-pack', '--stdin', '--fix-thin', ...limits], { timeoutMs })
      try {
        await feed(atMost(pack, maxBytes), talk)
      } catch (error) {
        throw explainIntake(error, maxBytes)
      }
    },
    async make(stream, timeoutMs) {
      const ref = 'refs/slipway/made'
      const config = [['fastimport.unpackLimit', '1']] as const
      const talk = own.talk([...here, 'fast-import', '--quiet', '--done'], { timeoutMs, config })
      await feed(stream, talk)
      const { code, stdout } = await own.run([...here, 'rev-parse', '--verify', ref])
      const id = stdout.trim()
      if (code !== 0 || !isCommitId(id)) throw new Error('git fast-import made no commit')
      return id
    },
    target,
    commit: (commitId) =>
      withObjects(own, folder, stepMs, async (objects) => {
        const [found] = await objects.look([commitId])
        if (found?.kind !== 'commit' || !('size' in found)) throw pushRefused('A branch must point to a commit.')
        if (found.size > maxCommitBytes) throw pushRefused('A commit has a message of more than 1 MB: shorten it.')
        return parseCommit(commitId, await objects.read(found))
      }),
    changes: (from, to) => changedPaths(own, folder, from, to),
    async *pack(wanted, known) {
      const args = ['pack-objects', '--revs', '--stdout', '--quiet', '--delta-base-offset']
      const { input, output } = own.talk([...here, ...args], { timeoutMs: stepMs })
      input.end([...wanted, ...known.map((id) => `^${id}`), ''].join('\n'))
      try {
        yield* output as AsyncIterable<Buffer>
      } catch (error) {
        throw explainIntake(error, 0)
      }
    },
    remove: () => git.remove([folder]),
  }
}

/** Removes leftovers of dead processes; not an intake that another one may be filling. */
export const sweepIntakes = async (git: Git, mirrors: string, before: Date): Promise<void> => {
  const left = (await readdir(mirrors)).filter((entry) => entry.includes(mark)).map((entry) => join(mirrors, entry))
  const old: string[] = []
  for (const path of left) {
    const found = await lstat(path).catch(() => null)
    if (found !== null && found.mtime < before) old.push(path)
  }
  if (old.length > 0) await git.remove(old)
}
