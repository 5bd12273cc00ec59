/**
 * Reads the facts about a repository that a build needs and makes its context, in separate threads: whatever a
 * repository contains, the server's own thread is not blocked. Promises a result or one sentence within the limits of
 * time, memory and size. Knows no engines or images. If the process dies, nothing is left except git processes that
 * finish by themselves.
 */
import { Readable } from 'node:stream'
import { untilAborted } from '../../lib/concurrency/waiting.ts'
import type { ThreadDeath } from '../../lib/thread-death.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { GitSource, ToolBuild } from '../builder.ts'
import { ownerOf } from '../git/mirror-room.ts'
import type { GitSetup } from '../git/process.ts'
import type { SourceTree } from '../git/source-tree.ts'
import {
  contextTooSlow,
  type PreparationLimits,
  readFailed,
  readTooMuch,
  readTooSlow,
  usualPreparation,
} from '../preparation-limits.ts'
import type { OwnDockerfile } from './context.ts'
import type { Dockerfile } from './dockerfile.ts'
import { type FromWorker, fromPlain, type Job, type Prepared } from './job.ts'
import { createPool, type Lease } from './pool.ts'

interface PreparedSource {
  tree: SourceTree
  dockerfile: Dockerfile
}

interface PreparationRequest {
  source: GitSource
  commitId: string
  rootPath: string
  dockerfilePath: string
  tool?: ToolBuild
  /** Leave submodules as the empty folders that they are in the repository itself. */
  skipSubmodules?: boolean
}

export interface Preparation {
  /**
   * The facts about this commit that a build needs. Rejects with `dockerfile_missing`, `path_outside`,
   * `build_refused`.
   */
  read(what: PreparationRequest, signal: AbortSignal): Promise<PreparedSource>
  /**
   * The context as a tar, with our own Dockerfile text under its name in it. Rejects with `build_refused` when it is
   * too large; a stream that fails later does so with a `DeploymentError` where a limit is the reason.
   */
  context(tree: SourceTree, dockerfile: OwnDockerfile, signal: AbortSignal): Promise<{ tar: Readable }>
  close(): Promise<void>
}

interface PreparationParts {
  git: Omit<GitSetup, 'onChild'>
  mirrorOf(source: GitSource): string
  limits?: Partial<PreparationLimits>
  threads: number
  /** For one thread. */
  heapMb?: number
  clock: Clock
}

const maxKnown = 500
const mostKept = 65_536
const ahead = 8

/** Calls back once, unless canceled. */
const after = (clock: Clock, ms: number, work: () => void): (() => void) => {
  const off = new AbortController()
  clock.sleep(ms, off.signal).then(work, () => {})
  return () => off.abort()
}

/** The server ended the thread of a job; another thread repeats it without an error. */
class ThreadEnded extends Error {
  constructor() {
    super('the thread that prepared the build was ended')
    this.name = 'ThreadEnded'
  }
}

const explainDeath = (death: ThreadDeath): Error => {
  if (death.of === 'memory') return readTooMuch()
  if (death.of === 'ended') return new ThreadEnded()
  return readFailed(death.message)
}

/** Waits for the first message of a job; anything else is its failure. */
const firstWord = async (lease: Lease, job: Job, limits: PreparationLimits, clock: Clock, signal: AbortSignal) => {
  const { promise, resolve, reject } = Promise.withResolvers<Exclude<FromWorker, { kind: 'failed' }>>()
  lease.onMessage((message) => {
    if (message.kind === 'died') reject(explainDeath(message))
    else if (message.kind === 'failed') reject(fromPlain(message.error))
    else resolve(message)
  })
  const putOff = after(clock, limits.readMs, () => reject(readTooSlow(limits)))
  lease.run(job)
  try {
    return await untilAborted(promise, signal)
  } finally {
    putOff()
  }
}

/** The remaining messages of a job as a stream, which owns the lease. */
const streamOf = (lease: Lease, limits: PreparationLimits, clock: Clock): Readable => {
  let owed = ahead
  const tar = new Readable({
    highWaterMark: 2 ** 20,
    read() {
      if (owed > 0) lease.grant(owed)
      owed = 0
    },
    destroy(error, done) {
      putOff()
      lease.release()
      done(error)
    },
  })
  const putOff = after(clock, limits.contextMs, () => tar.destroy(contextTooSlow(limits)))
  lease.onMessage((message) => {
    if (message.kind === 'died') tar.destroy(explainDeath(message))
    else if (message.kind === 'failed') tar.destroy(fromPlain(message.error))
    else if (message.kind === 'end') tar.push(null)
    else if (message.kind === 'chunk') {
      owed += 1
      const { buffer } = message.bytes
      if (!tar.push(Buffer.from(buffer))) return
      lease.grant(owed)
      owed = 0
    }
  })
  return tar
}

export const createPreparation = (parts: PreparationParts): Preparation => {
  const { clock } = parts
  const limits = { ...usualPreparation, ...parts.limits }
  const pool = createPool({ git: parts.git, size: parts.threads, clock, heapMb: parts.heapMb })
  const known = new Map<string, PreparedSource>()

  /** `work` releases the lease, unless it fails. Starts over with another thread if the server ended the first. */
  const withLease = async <T>(mirror: string, signal: AbortSignal, work: (lease: Lease) => Promise<T>): Promise<T> => {
    for (;;) {
      const lease = await pool.lease(ownerOf(mirror), signal)
      try {
        return await work(lease)
      } catch (error) {
        lease.release()
        if (!(error instanceof ThreadEnded)) throw error
      }
    }
  }

  const readNow = async (mirror: string, what: PreparationRequest, signal: AbortSignal): Promise<Prepared> => {
    const { commitId, rootPath, dockerfilePath, tool } = what
    const job: Job = { kind: 'read', mirror, commitId, rootPath, dockerfilePath, tool, limits }
    return withLease(mirror, signal, async (lease) => {
      const answer = await firstWord(lease, job, limits, clock, signal)
      if (answer.kind !== 'read') throw new Error(`a preparation answered ${answer.kind}`)
      lease.release()
      return answer.prepared
    })
  }

  return {
    async read(what, signal) {
      const mirror = parts.mirrorOf(what.source)
      const name = JSON.stringify([mirror, what.commitId, what.rootPath, what.dockerfilePath, what.tool])
      // A commit never changes: its cached facts stay valid.
      const before = known.get(name)
      if (before !== undefined) return before
      const { tree, dockerfile } = await readNow(mirror, what, signal)
      const prepared = { tree: { ...tree, dockerfile: Buffer.from(tree.dockerfile) }, dockerfile }
      if (tree.dockerfile.length < mostKept) known.set(name, prepared)
      if (known.size > maxKnown) known.delete(known.keys().next().value!)
      return prepared
    },
    async context(tree, own, signal) {
      return withLease(tree.mirror, signal, async (lease) => {
        const answer = await firstWord(lease, { kind: 'context', tree, own, limits }, limits, clock, signal)
        if (answer.kind !== 'opened') throw new Error(`a preparation answered ${answer.kind}`)
        return { tar: streamOf(lease, limits, clock) }
      })
    },
    close: () => pool.close(),
  }
}
