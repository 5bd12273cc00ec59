/**
 * Receives objects that are pushed to a repository on this server, by git or as an archive. Promises one push at a
 * time for each repository, a few at once for each organization, and that a refused push leaves nothing behind,
 * whenever it ends. A process that dies leaves a lease that runs out, and an unused pack.
 */
import { internalUrlOf } from '../../builds/git/names.ts'
import type { Intake } from '../../builds/pushed/intake.ts'
import { dropPack, emptyPackBytes, writePack } from '../../builds/pushed/rows.ts'
import type { Accepted, OwnApplication, OwnPush, OwnRef } from '../../deployments/sources/git/own.ts'
import { createSemaphore } from '../../lib/concurrency/semaphore.ts'
import { type ApiError, conflict, unavailable } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import { LeaseHandedOff } from '../../lib/lease-handed-off.ts'
import { sqlState } from '../../store/database.ts'
import { type Leased, LeaseLost } from '../../work/lease.ts'
import { createLoop } from '../../work/loop.ts'
import type { Parts } from '../parts.ts'

const places = 8
const perOrganization = 3
/** The most pushes at once, including the first ones of other organizations: each may take ten minutes. */
const mostPlaces = 24
const heartbeatMs = 4000
const patienceMs = 30_000
const retryMs = 250
/** From the first byte of a push to the moment when it is accepted. */
export const receiveMs = 600_000

type StoredPack = OwnPush['pack']

export interface Receiving {
  intake: Intake
  refs: OwnRef[]
  signal: AbortSignal
  /** Writes what these objects need and the repository lacks, for `accept`. */
  store(wanted: readonly string[]): Promise<StoredPack>
  accept(push: Omit<OwnPush, 'application'>): Promise<Accepted>
}

const busy = (): ApiError =>
  conflict('push_in_progress', 'Another push to this repository is under way: try again in a moment.')

/** An application whose repository is on this server. */
export const findOwn = async ({ deployments }: Parts, id: string): Promise<OwnApplication> => {
  const found = await deployments.own.find(id)
  if (found !== null) return found
  throw conflict(
    'repository_elsewhere',
    'The repository of this application is elsewhere: set its git_repository.url to slipway:internal.',
  )
}

const gone = (): ApiError => conflict('application_changed', 'The application was deleted meanwhile.')

const claim = async (parts: Parts, application: OwnApplication, signal: AbortSignal): Promise<Leased> => {
  const { own } = parts.deployments
  const until = parts.clock.monotonicMs() + patienceMs
  for (;;) {
    const lease = await own.claim(application)
    if (lease !== null) return lease
    if (parts.clock.monotonicMs() > until) throw busy()
    if ((await own.find(application.id)) === null) throw gone()
    await parts.clock.sleep(retryMs, signal)
  }
}

const explain = (error: unknown): unknown => {
  if (error instanceof LeaseHandedOff) return busy()
  return sqlState(error) === '23503' ? gone() : error
}

/** Keeps the lease; aborts the push when that is lost. */
const keep = (parts: Parts, lease: Leased, lost: AbortController) =>
  createLoop(parts, {
    name: 'received pushes',
    periodMs: heartbeatMs,
    waits: true,
    failed: 'the lease of a push could not be renewed',
    async run() {
      if (!(await parts.deployments.own.renew(lease))) lost.abort(new LeaseLost())
    },
  })

const receive = async <T>(
  parts: Parts,
  application: OwnApplication,
  signal: AbortSignal,
  work: (receiving: Receiving) => Promise<T>,
): Promise<T> => {
  const { database, repositories, deployments } = parts
  if (repositories === undefined) throw unavailable('no_repositories', 'This server keeps no repositories.')
  const { id, organizationId, branch } = application
  const lease = await claim(parts, application, signal)
  const lost = new AbortController()
  const keeping = keep(parts, lease, lost)
  const both = AbortSignal.any([signal, lost.signal])
  const packId = newId()
  let intake: Intake | undefined
  try {
    const refs = await deployments.own.refs(application)
    intake = await repositories.intake({ organizationId, branch, url: internalUrlOf(id) }, both)
    const { pack } = intake
    return await work({
      intake,
      refs,
      signal: both,
      async store(wanted) {
        const known = refs.map(({ objectId }) => objectId)
        const { bytes, name } = await writePack(database, { id: packId, repositoryId: id }, pack(wanted, known))
        return bytes <= emptyPackBytes ? null : { id: packId, bytes, name }
      },
      accept: (push) => {
        both.throwIfAborted()
        return deployments.own.accept(lease, { application, ...push })
      },
    })
  } catch (error) {
    throw explain(error)
  } finally {
    await keeping.stop()
    await intake?.remove().catch((error: unknown) => parts.log.warn({ err: error }, 'a push could not be cleaned up'))
    await dropPack(database, packId).catch(() => {})
    await deployments.own.release(lease).catch(() => {})
  }
}

const createReceiver = (parts: Parts) => {
  const take = createSemaphore(places, perOrganization, mostPlaces)
  return <T>(
    application: OwnApplication,
    signal: AbortSignal,
    work: (receiving: Receiving) => Promise<T>,
  ): Promise<T> => take(application.organizationId, () => receive(parts, application, signal, work), { signal })
}

export type Receiver = ReturnType<typeof createReceiver>

const receivers = new WeakMap<Parts, Receiver>()

/** The one receiver of this server: all pushes, by git or as an archive, share its places. */
export const receiverOf = (parts: Parts): Receiver => {
  const found = receivers.get(parts) ?? createReceiver(parts)
  receivers.set(parts, found)
  return found
}

const usualMaxMb = 200

export const maxPushBytes = ({ settings }: Pick<Parts, 'settings'>): number =>
  (settings.pushMaxMb ?? usualMaxMb) * 2 ** 20
