/** What cases of the fault table share: a Slipway of their own, and steps that the stories of other tests have not. */
import assert from 'node:assert/strict'
import { ensureBusybox } from '../support/docker/busybox-image.ts'
import { engine } from '../support/docker/docker.ts'
import { type GitServer, startGitServer } from '../support/peers/git-server.ts'
import { type Json, prepareSlipway, type Slipway, type SlipwayOptions } from '../support/slipway/slipway.ts'
import type { Place } from '../support/slipway/story.ts'

export interface Scene {
  slipway: Slipway
  git: GitServer
  /** Sends a request that must succeed; answers its body. */
  send(method: string, path: string, body?: unknown): Promise<Json>
  /** A repository with one commit; answers its address. */
  repository(name: string, files: Record<string, string>): Promise<string>
}

/** Runs `work` with a Slipway that is started for it and leaves nothing behind. */
export const withScene = async <T>(options: SlipwayOptions, work: (scene: Scene) => Promise<T>): Promise<T> => {
  if (options.fake !== true) await ensureBusybox()
  const git = await startGitServer()
  const slipway = await prepareSlipway(options)
  try {
    await slipway.start()
    return await work({
      slipway,
      git,
      async send(method, path, body) {
        const answer = await slipway.api(method, path, body)
        assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
        return answer.body
      },
      async repository(name, files) {
        await git.createRepository(name)
        await git.commit(name, files, 'first')
        return git.url(name)
      },
    })
  } finally {
    await slipway.remove().finally(() => git.close())
  }
}

/** How long the last deployment of a service was in one of its steps, in whole seconds. */
export const stepSeconds = async ({ send }: Scene, path: string, step: string): Promise<number> => {
  const { steps } = await send('GET', `${path}/status`)
  const found = steps?.details.find(({ step_name: name }: Json) => name === step)
  assert.ok(found, `no step ${step} in ${JSON.stringify(steps)}`)
  return found.duration_sec
}

/** A registry of images, known to the organization; nothing is asked of it before a deployment. */
export const addRegistry = ({ send }: Scene, place: Place, name: string, url: string): Promise<Json> =>
  send('POST', `/organization/${place.organizationId}/containerRegistry`, {
    name,
    kind: 'GENERIC_CR',
    description: '',
    url,
    config: {},
  })

export const addContainer = (
  { send }: Scene,
  environmentId: string,
  name: string,
  image: { registry_id: string; image_name: string; tag: string },
): Promise<Json> =>
  send('POST', `/environment/${environmentId}/container`, { name, ...image, memory: 16, healthchecks: {} })

/** How many containers, networks and volumes the engine holds of an environment. */
export const leftoversIn = async (environmentId: string): Promise<number> => {
  const filters = JSON.stringify({ label: [`slipway.environment=${environmentId}`] })
  const containers = await engine.call<unknown[]>('GET', '/containers/json', { query: { all: true, filters } })
  const networks = await engine.call<unknown[]>('GET', '/networks', { query: { filters } })
  const { Volumes } = await engine.call<{ Volumes: unknown[] | null }>('GET', '/volumes', { query: { filters } })
  return containers.length + networks.length + (Volumes ?? []).length
}
