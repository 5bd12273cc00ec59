/** Deployments of our server as a caller sees them: asked for, then read until they are what was asked for. */

import { untilServing } from './floors/raw.ts'
import type { Ours } from './ours.ts'
import { applicationBody } from './ours-application.ts'

const failures = /ERROR$|^CANCELED$/

interface Status {
  state: string
  status_details?: unknown
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** Reads the status every 20 ms (more often slows what is measured: each read costs this machine a millisecond) until it is one of `states`; rejects on a failed state that was not asked for. */
export const untilState = async (ours: Ours, id: string, states: string[], timeoutMs = 60_000): Promise<string> => {
  let state = ''
  for (const deadline = performance.now() + timeoutMs; performance.now() < deadline; await pause(20)) {
    state = (await ours.call<Status & object>('GET', `/application/${id}/status`)).state
    if (states.includes(state)) return state
    if (failures.test(state)) throw new Error(`application ${id} is ${state}: ${await lastError(ours, id)}`)
  }
  throw new Error(`application ${id} is ${state} after ${timeoutMs / 1000} s, not ${states.join(' or ')}`)
}

interface Statuses {
  applications: { id: string; state: string }[]
}

/**
 * Reads the statuses of an environment every 20 ms until all its applications are in `state`: one reader, as a client
 * that waits for an environment is, because a reader for each service takes the CPU that the deployment needs.
 */
export const untilAll = async (ours: Ours, environmentId: string, state: string, timeoutMs = 60_000): Promise<void> => {
  for (const deadline = performance.now() + timeoutMs; performance.now() < deadline; await pause(20)) {
    const { applications } = await ours.call<Statuses>('GET', `/environment/${environmentId}/statuses`)
    if (applications.every((application) => application.state === state)) return
    const failed = applications.find((application) => failures.test(application.state))
    if (failed) throw new Error(`application ${failed.id} is ${failed.state}: ${await lastError(ours, failed.id)}`)
  }
  throw new Error(`environment ${environmentId} is not ${state} after ${timeoutMs / 1000} s`)
}

const lastError = async (ours: Ours, id: string): Promise<string> => {
  const rows = await ours.database
    .query<{ error: string | null }>(
      `select error ->> 'message' as error from deployment_service where service_id = $1
       order by created_at desc limit 1`,
      [id],
    )
    .catch(() => [])
  return rows[0]?.error ?? 'no reason recorded'
}

export const makeApplication = async (
  ours: Ours,
  environmentId: string,
  name: string,
  gitUrl: string,
  more: Record<string, unknown> = {},
): Promise<string> => {
  const path = `/environment/${environmentId}/application`
  return (await ours.call<{ id: string }>('POST', path, applicationBody(name, gitUrl, more))).id
}

/** Asks for a deployment and waits until DEPLOYED. */
export const deploy = async (ours: Ours, id: string, commitId?: string): Promise<void> => {
  await ours.call('POST', `/application/${id}/deploy`, commitId === undefined ? {} : { git_commit_id: commitId })
  await untilState(ours, id, ['DEPLOYED'])
}

/** Host name under which the router serves the application. */
export const hostOf = async (ours: Ours, id: string): Promise<string> => {
  const rows = await ours.database.query<{ host: string }>(
    'select host from route where service_id = $1 order by is_default desc, host limit 1',
    [id],
  )
  if (rows[0] === undefined) throw new Error(`application ${id} has no route`)
  return rows[0].host
}

/** Waits until the router answers 200 for the application. */
export const untilRouted = async (
  ours: Ours,
  id: string,
  accept: (body: string) => boolean = () => true,
  path = '/',
): Promise<void> => {
  const host = await hostOf(ours, id)
  await untilServing(`http://127.0.0.1:${ours.routerPort}${path}`, accept, { host: `${host}:${ours.routerPort}` })
}

/** Deletes an application and waits until it is gone; a server that cannot is not an error of the figure. */
export const discard = async (ours: Ours, id: string): Promise<void> => {
  try {
    await ours.call('DELETE', `/application/${id}`)
    for (const deadline = performance.now() + 15_000; performance.now() < deadline; await pause(20)) {
      await ours.call('GET', `/application/${id}`)
    }
  } catch {
    // Gone, or not to be deleted: the containers go with the bench's label.
  }
}
