/**
 * Repositories on this server itself, as sources of mirrors. Pushed objects are in the database; the bare repository
 * on disk is a copy that any server can make again. A process that dies here leaves a copy that lacks packs, which the
 * next use adds.
 */
import { lstat, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { DeploymentError } from '../../lib/errors.ts'
import type { ExecResult } from '../../lib/exec.ts'
import type { Database } from '../../store/database.ts'
import { explainLimits, isBroken, refused } from '../git/errors.ts'
import { type Git, GitFailed } from '../git/process.ts'
import type { StoredRepositories } from '../git/remote.ts'
import { type KeptPack, readPacks, readParts, readRefs } from './rows.ts'

const restoreMs = 600_000
/** Marks the packs in a mirror that are the database's: others are those of submodules. */
const keepWord = 'slipway'

const packsIn = (mirror: string): string => join(mirror, 'objects/pack')

/** Its index is the last of a pack's files to appear. */
const isThere = ({ name }: KeptPack, mirror: string): Promise<boolean> =>
  lstat(join(packsIn(mirror), `pack-${name}.idx`)).then(
    (found) => found.isFile(),
    () => false,
  )

const bring = async (database: Database, git: Git, mirror: string, pack: KeptPack): Promise<void> => {
  const args = ['--git-dir', mirror, 'index-pack', '--stdin', `--keep=${keepWord}`]
  const { input, output } = git.talk(args, { timeoutMs: restoreMs })
  const ended = output.toArray()
  // Its final message explains a broken pipe.
  const [, printed] = await Promise.allSettled([pipeline(readParts(database, pack.id), input), ended])
  if (printed.status === 'rejected') throw printed.reason
}

/** Removes packs that the database has replaced with others. */
const removeOld = async (git: Git, mirror: string, packs: readonly KeptPack[]): Promise<void> => {
  const wanted = new Set(packs.map(({ name }) => name))
  const entries = await readdir(packsIn(mirror)).catch(() => [])
  const old = entries
    .flatMap((entry) => /^pack-([0-9a-f]+)\.keep$/.exec(entry)?.[1] ?? [])
    .filter((name) => !wanted.has(name))
  await git.remove(
    old.flatMap((name) =>
      ['keep', 'idx', 'rev', 'pack'].map((ending) => join(packsIn(mirror), `pack-${name}.${ending}`)),
    ),
  )
}

const mostTries = 3

const haveGone = async (database: Database, id: string, packs: readonly KeptPack[]): Promise<boolean> => {
  const there = new Set((await readPacks(database, id)).map((pack) => pack.id))
  return packs.some((pack) => !there.has(pack.id))
}

const done: ExecResult = { code: 0, stdout: '', stderr: '' }

export const createStored = (database: Database): StoredRepositories => ({
  async refs(id) {
    return new Map((await readRefs(database, id)).map(({ name, commitId }) => [name, commitId]))
  },
  async restore(git, mirror, id, inRoom) {
    for (let tries = 1; ; tries += 1) {
      const packs = await readPacks(database, id)
      try {
        for (const pack of packs)
          if (!(await isThere(pack, mirror))) await inRoom(() => bring(database, git, mirror, pack))
      } catch (error) {
        if (!(error instanceof GitFailed)) throw error
        // A pack that was merged with others while it was read has ended early: its objects are in the merged one.
        if (tries < mostTries && (await haveGone(database, id, packs))) continue
        if (isBroken(error.stderr)) return { ...done, code: 1, stderr: error.stderr }
        throw explainLimits(error.stderr) ?? refused("This application's repository could not be read.", error)
      }
      await removeOld(git, mirror, packs)
      return done
    }
  },
})

/** Points the branches and tags of a mirror to the commits in the database, and its HEAD to a branch. */
export const alignRefs = async (
  git: Git,
  mirror: string,
  wanted: ReadonlyMap<string, string>,
  branch: string,
): Promise<void> => {
  const listed = await git.run([
    '--git-dir',
    mirror,
    'for-each-ref',
    '--format=%(objectname) %(refname)',
    'refs/heads/',
    'refs/tags/',
  ])
  if (listed.code !== 0) throw new Error(`git for-each-ref failed: ${listed.stderr.trim()}`)
  const there = new Map(
    listed.stdout
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => [line.slice(line.indexOf(' ') + 1), line.slice(0, line.indexOf(' '))] as const),
  )
  const gone = [...there.keys()].filter((name) => !wanted.has(name)).map((name) => `delete ${name}\n`)
  const moved = [...wanted].filter(([name, id]) => there.get(name) !== id).map(([name, id]) => `update ${name} ${id}\n`)
  // Deletions come first: `a` may have become `a/b`.
  for (const lines of [gone, moved]) {
    if (lines.length === 0) continue
    const { code, stderr } = await git.run(['--git-dir', mirror, 'update-ref', '--stdin'], { input: lines.join('') })
    if (code !== 0) throw new DeploymentError('git_refused', `git update-ref failed: ${stderr.trim()}`)
  }
  await git.run(['--git-dir', mirror, 'symbolic-ref', 'HEAD', `refs/heads/${branch}`])
}
