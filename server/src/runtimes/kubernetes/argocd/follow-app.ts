/** Waits for changes of an app by an Argo CD. */
import { DeploymentError } from '../../../lib/errors.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { ServiceApp, ServiceKey } from '../../runtime.ts'
import { answeredFor } from '../answered.ts'
import { followObjects } from '../follow.ts'
import { labels } from '../manifests/describe.ts'
import { asDeploymentError, type Objects } from '../objects.ts'
import { type Application, type Progress, progressOf } from './verdict.ts'

export interface FollowParts {
  objects: Objects
  clock: Clock
  argoNamespace: string
}

export const createAppFollower = ({ objects, clock, argoNamespace }: FollowParts) => {
  /** Until `check` returns a value for the app; it is null while there is none. */
  const untilApp = async <T>(
    { serviceId }: ServiceKey,
    check: (app: Application | null) => T | null,
    signal: AbortSignal,
  ): Promise<T> => {
    const over = new AbortController()
    const found: { is: T }[] = []
    await followObjects<Application>(
      objects,
      clock,
      {
        ...{ kind: 'Application', namespace: argoNamespace, wanted: { [labels.service]: serviceId } },
        onChange: (change) => {
          const app =
            change.type === 'ALL' ? (change.items[0] ?? null) : change.type === 'DELETED' ? null : change.object
          const is = found.length === 0 ? check(app) : null
          if (is === null) return
          found.push({ is })
          over.abort()
        },
      },
      AbortSignal.any([signal, over.signal]),
    ).catch((error: unknown) => {
      if (found.length > 0) return
      signal.throwIfAborted()
      throw asDeploymentError(error, 'the Argo CD application of the service')
    })
    if (found.length === 0) signal.throwIfAborted()
    return found[0]!.is
  }

  const ready = async (workload: ServiceApp, report: (seen: Progress) => void, signal: AbortSignal): Promise<void> => {
    const { commit } = workload.app.content.reveal()
    const [late, passed] = [new AbortController(), new AbortController()]
    answeredFor(objects, clock, workload, workload.readyTimeoutMs, passed.signal).then(
      () => late.abort(),
      () => {},
    )
    let last: Progress = { is: 'waiting', message: '' }
    const look = (app: Application | null): Progress | null => {
      if (app === null) return null
      const before = last.message
      last = progressOf(app, commit)
      if (last.is === 'waiting' && last.message !== before) report(last)
      return last.is === 'waiting' ? null : last
    }
    try {
      const { is, message } = await untilApp(workload, look, AbortSignal.any([signal, late.signal]))
      if (is === 'failed') throw new DeploymentError('sync_failed', message)
    } catch (error) {
      signal.throwIfAborted()
      if (!late.signal.aborted || error !== late.signal.reason) throw error
      const within = `${Math.round(workload.readyTimeoutMs / 1000)} s`
      throw new DeploymentError(
        'not_ready',
        `The app was not Synced and Healthy within ${within}. ${last.message}`.trim(),
      )
    } finally {
      passed.abort()
    }
  }

  return { untilApp, ready }
}
