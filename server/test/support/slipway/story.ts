/** Steps that end-to-end tests share: a project, an environment, an application, and waiting for it. */
import assert from 'node:assert/strict'
import { request } from 'undici'
import { until } from '../until.ts'
import type { Json, Slipway } from './slipway.ts'

export interface Place {
  organizationId: string
  projectId: string
  environmentId: string
  environmentName: string
}

let made = 0

/** A new project with an environment on the default cluster. */
export const createPlace = async (slipway: Slipway): Promise<Place> => {
  made += 1
  const number = made
  const organization = (await slipway.api('GET', '/organization')).body
  const project = await slipway.api('POST', `/organization/${organization.id}/project`, { name: `Project ${number}` })
  assert.equal(project.status, 200)
  const environmentName = `env${number}`
  const environment = await slipway.api('POST', `/project/${project.body.id}/environment`, {
    name: environmentName,
    mode: 'DEVELOPMENT',
  })
  assert.equal(environment.status, 201, JSON.stringify(environment.body))
  return {
    organizationId: organization.id,
    projectId: project.body.id,
    environmentId: environment.body.id,
    environmentName,
  }
}

/** An application on port 8080, routed, from a git URL. */
export const createApplication = async (
  slipway: Slipway,
  place: Place,
  name: string,
  url: string,
  more: Record<string, unknown> = {},
): Promise<Json> => {
  const answer = await slipway.api('POST', `/environment/${place.environmentId}/application`, {
    name,
    git_repository: { url, branch: 'main' },
    build_mode: 'DOCKER',
    dockerfile_path: 'Dockerfile',
    cpu: 500,
    memory: 128,
    min_running_instances: 1,
    max_running_instances: 1,
    ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
    ...more,
  })
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return answer.body
}

export const deploy = async (slipway: Slipway, applicationId: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api('POST', `/application/${applicationId}/deploy`, body)
  assert.equal(answer.status, 202, JSON.stringify(answer.body))
  return answer.body
}

const exact = { 'x-state-vocabulary': 'deployment' }

export const isSettled = (state: string): boolean =>
  /_ERROR$/.test(state) || ['READY', 'DEPLOYED', 'RESTARTED', 'STOPPED', 'CANCELED', 'DELETED'].includes(state)

/** The exact state of anything with a status, by its path; DELETED when it is gone. */
export const stateAt = async (slipway: Slipway, path: string): Promise<string> => {
  const { status, body } = await slipway.api('GET', `${path}/status`, undefined, exact)
  return status === 404 ? 'DELETED' : body.state
}

/** Waits until nothing is going on at `path` and answers the exact state. */
export const settleAt = (slipway: Slipway, path: string, timeoutMs = 60_000): Promise<string> =>
  until(
    async () => {
      const state = await stateAt(slipway, path)
      return isSettled(state) ? state : null
    },
    { timeoutMs, what: `${path} to settle` },
  )

export const stateOf = (slipway: Slipway, applicationId: string): Promise<string> =>
  stateAt(slipway, `/application/${applicationId}`)

export const settle = (slipway: Slipway, applicationId: string, timeoutMs?: number): Promise<string> =>
  settleAt(slipway, `/application/${applicationId}`, timeoutMs)

export const hostOf = (place: Place, name: string): string => `${name}-${place.environmentName}.localhost`

/** Asks a service through the router, as a browser would ask `http://<host>:<port>`. */
export const visit = async (slipway: Slipway, host: string, path = '/'): Promise<{ status: number; text: string }> => {
  const answer = await request(`http://127.0.0.1:${slipway.routerPort}${path}`, {
    headers: { host: `${host}:${slipway.routerPort}` },
  })
  return { status: answer.statusCode, text: (await answer.body.text()).trim() }
}

/** The texts of an environment's deployment log. */
export const deploymentLog = async (slipway: Slipway, environmentId: string): Promise<string> => {
  const { body } = await slipway.api('GET', `/environment/${environmentId}/logs`)
  return body.map((entry: Json) => entry.message?.safe_message ?? entry.error?.user_log_message ?? '').join('\n')
}
