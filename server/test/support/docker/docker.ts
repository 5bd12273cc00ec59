/** What tests ask the real engine, beside what the product does. */
import { connect, type Socket } from 'node:net'
import { createEngine } from '../../../src/lib/docker/docker-engine.ts'

export const engine = createEngine()

/** A bare connection to the same engine, for what stands between it and the product. */
export const connectEngine = (): Socket => {
  const host = process.env.DOCKER_HOST || 'unix:///var/run/docker.sock'
  if (host.startsWith('unix://')) return connect(host.slice('unix://'.length))
  const { hostname, port } = new URL(host.replace(/^tcp:/, 'http:'))
  return connect(Number(port), hostname.replace(/^\[|\]$/g, ''))
}

export interface ContainerRow {
  Id: string
  State: string
}

export interface ContainerDetail {
  Config: { Env: string[] }
  HostConfig: { Privileged: boolean; Binds: string[] | null; NetworkMode: string }
}

const labelled = (label: string): { all: boolean; filters: string } => ({
  all: true,
  filters: JSON.stringify({ label: [label] }),
})

/** Containers of a service, whatever their state. */
export const containersOf = (serviceId: string): Promise<ContainerRow[]> =>
  engine.call('GET', '/containers/json', { query: labelled(`slipway.service=${serviceId}`) })

export const networksOf = (environmentId: string): Promise<{ Id: string }[]> =>
  engine.call('GET', '/networks', { query: labelled(`slipway.environment=${environmentId}`) })

export const inspectContainer = (id: string): Promise<ContainerDetail> => engine.call('GET', `/containers/${id}/json`)

export const removeContainer = (id: string): Promise<void> =>
  engine.call('DELETE', `/containers/${id}`, { query: { force: true } })

export const volumesOf = async (environmentId: string): Promise<unknown[]> => {
  const { Volumes } = await engine.call<{ Volumes: unknown[] | null }>('GET', '/volumes', {
    query: labelled(`slipway.environment=${environmentId}`),
  })
  return Volumes ?? []
}
