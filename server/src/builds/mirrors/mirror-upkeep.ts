/**
 * Maintains mirrors: cleaned of leftovers of a killed git before their first use, repaired when broken, repacked when
 * full.
 */
import type { GitSource } from '../builder.ts'
import { isBroken, isLocked } from '../git/errors.ts'
import { clearLeftovers, countPacks, ensureMirror } from '../git/mirror-folder.ts'
import type { createRemote, GitLimits } from '../git/remote.ts'
import type { MirrorParts } from './mirrors.ts'

const maxPacks = 20
const started = new Date(Date.now() - performance.now())

export const createUpkeep = (
  { git, template, log, clock }: MirrorParts,
  limits: GitLimits,
  { fetchCommit }: ReturnType<typeof createRemote>,
  closing: AbortSignal,
) => {
  const clean = new Map<string, Promise<void>>()

  const fetchWithRepair = async (source: GitSource, mirror: string, commitId: string, signal: AbortSignal) => {
    const first = await fetchCommit(source, mirror, commitId, signal)
    if (first.code === 0) return first
    if (isLocked(first.stderr)) {
      await clock.sleep(1000, signal)
      await clearLeftovers(git, mirror, new Date(Date.now() + 60_000))
    } else if (isBroken(first.stderr)) {
      log.warn({ mirror }, 'recreating a broken git mirror')
      await git.remove([mirror])
    } else return first
    await ensureMirror(git, mirror, template)
    return fetchCommit(source, mirror, commitId, signal)
  }

  const tidy = async (mirror: string): Promise<void> => {
    if ((await countPacks(mirror)) <= maxPacks) return
    await git.run(['--git-dir', mirror, 'gc', '--quiet'], { timeoutMs: limits.fetchMs, signal: closing })
  }

  const prepare = (mirror: string): Promise<void> => {
    const ready = clean.get(mirror) ?? clearLeftovers(git, mirror, started)
    clean.set(mirror, ready)
    return ready.then(() => ensureMirror(git, mirror, template))
  }

  return { fetchWithRepair, tidy, prepare }
}
