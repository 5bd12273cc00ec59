/** A builder on the real engine without a server: repositories, builds of organizations, and what became of them. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { BuildRequest } from '../../../src/builds/builder.ts'
import { removeBuiltImages } from '../../../src/builds/built-images.ts'
import { removeGitPlace } from '../../../src/builds/git/place.ts'
import type { OrganizationImages } from '../../../src/images/images.ts'
import { ignoreGone } from '../../../src/lib/docker/docker-engine.ts'
import { DeploymentError } from '../../../src/lib/errors.ts'
import { newId } from '../../../src/lib/ids.ts'
import { createLog } from '../../../src/lib/log.ts'
import { createOutbound } from '../../../src/lib/net/outbound.ts'
import { Secret } from '../../../src/lib/secret.ts'
import { systemClock } from '../../../src/lib/time/clock.ts'
import { createMemoryCaches, createMemoryStore } from '../image-store.ts'
import { type FileContent, startGitServer } from '../peers/git-server.ts'
import { ensureBusybox } from './busybox-image.ts'
import { engine } from './docker.ts'
import { createBuilder } from './one-builder.ts'
import { startImages } from './organization-images.ts'

export const never = new AbortController().signal

export type Files = Record<string, FileContent>

export interface Asked {
  organizationId: string
  env?: Record<string, string>
  onLog?(text: string): void
  signal?: AbortSignal
  targetStage?: string
  dockerfilePath?: string
  clusterId?: string
  cacheScope?: string
}

export interface Outcome {
  imageId: string
  skipped: boolean
  log: string
}

export interface BuildSceneOptions {
  /** Nothing else on this machine may be asked; default: all of loopback. */
  reachesOnlyGit?: boolean
  /** Builds at a time. */
  concurrency?: number
  /** Reserve of the engine's disk. */
  diskReserveMb?: number
  /** Limit of the caches of an organization. */
  cacheMb?: number
  /** Of one download. */
  downloadBytes?: number
}

export const openBuildScene = async ({
  concurrency = 4,
  diskReserveMb,
  cacheMb,
  downloadBytes,
  reachesOnlyGit = false,
}: BuildSceneOptions = {}) => {
  await ensureBusybox()
  const server = await startGitServer()
  const dataDir = mkdtempSync(join(tmpdir(), 'slipway-builds-'))
  const memory = createMemoryStore()
  const caches = createMemoryCaches()
  /** What a registry would give, by its repository's name. */
  const given = new Map<string, string>()
  const registry = await startImages()
  const images: Pick<OrganizationImages, 'pull'> = {
    async pull(access, progress, signal) {
      const held = given.get(access.repository)
      return held === undefined ? registry.pull(access, progress, signal) : { imageId: held, reference: held }
    },
  }
  const outbound = createOutbound({ allow: [reachesOnlyGit ? new URL(server.origin).host : 'loopback'] })
  const builder = createBuilder({
    dataDir,
    database: undefined as never,
    network: outbound,
    outbound,
    downloadBytes,
    log: createLog('silent'),
    clock: systemClock,
    concurrency,
    diskReserveMb,
    cacheMb,
    store: memory.store,
    cacheStore: caches.store,
    images,
    registryLogins: async () => [],
  })
  const ownClusterId = newId()
  let made = 0

  const repository = async (files: Files): Promise<string> => {
    made += 1
    const name = `built${made}`
    await server.createRepository(name)
    await server.commit(name, files, 'files')
    return server.url(name)
  }

  const build = async (url: string, asked: Asked): Promise<Outcome> => {
    const { organizationId, env = {}, onLog, targetStage = null, signal = never } = asked
    const { dockerfilePath = 'Dockerfile', clusterId = ownClusterId, cacheScope = 'a project DEVELOPMENT' } = asked
    const source = { organizationId, url, branch: 'main' }
    const { git_commit_id: commitId } = await builder.fetch(source, never)
    const request: BuildRequest = {
      ...{ organizationId, source, commitId, rootPath: '/', dockerfilePath, targetStage },
      ...{
        variables: new Secret(env),
        secrets: new Secret([]),
        serviceId: newId(),
        deploymentId: newId(),
        clusterId,
        cacheScope,
      },
      ...{ memoryMb: 256, cpuMillicores: 1000, timeoutMs: 60_000 },
    }
    let log = ''
    const write = (text: string): void => {
      log += text
      onLog?.(text)
    }
    const { imageId, skipped } = await builder.build(request, write, signal)
    return { imageId, skipped, log }
  }

  return {
    given,
    store: memory.store,
    caches,
    repository,
    build,
    /** Builds files that were never built before. */
    buildFiles: async (files: Files, asked: Asked): Promise<Outcome> => build(await repository(files), asked),
    refused: async (files: Files, asked: Asked, code: string): Promise<DeploymentError> => {
      const error: unknown = await build(await repository(files), asked).then(
        ({ log }) => assert.fail(`it was built: ${log}`),
        (reason: unknown) => reason,
      )
      assert.ok(error instanceof DeploymentError, String((error as Error).stack))
      assert.equal(error.code, code, error.message)
      return error
    },
    async close() {
      await builder.close()
      await registry.close()
      await server.close()
      for (const volume of caches.volumes())
        await ignoreGone(engine.call('DELETE', `/volumes/${volume}`, { query: { force: true } }))
      await removeBuiltImages(engine, memory.contentKeys(), memory.stepIds())
      await removeGitPlace(dataDir)
      rmSync(dataDir, { recursive: true, force: true })
    },
  }
}

export type BuildScene = Awaited<ReturnType<typeof openBuildScene>>
