/** How large the caches are that a build used; then what is too much goes. Runs after the build. */

import type { Engine } from '../../lib/docker/docker-engine.ts'
import type { ImageOwner } from '../image-store.ts'
import type { BuildContainers } from './build-containers.ts'
import { readOutput } from './container-output.ts'
import type { StepCaches } from './step-caches.ts'

/** Who fills a cache with more files than can be counted meanwhile loses it. */
const measureMs = 120_000
const unknownKb = 2 ** 40

export interface CacheSizeParts {
  engine: Engine
  containers: BuildContainers
  caches: StepCaches
  holderImage(signal: AbortSignal): Promise<string>
}

const folder = '/slipway-cache'

const bodyOf = (Image: string, volumes: readonly string[]) => ({
  Image,
  User: '0',
  Entrypoint: ['/bin/sh', '-c', `du -sk ${folder}/*`],
  Cmd: [],
  HostConfig: {
    NetworkMode: 'none',
    CapDrop: ['ALL'],
    CapAdd: ['DAC_READ_SEARCH'],
    SecurityOpt: ['no-new-privileges'],
    ReadonlyRootfs: true,
    PidsLimit: 16,
    Memory: 256 * 2 ** 20,
    LogConfig: { Type: 'none' },
    Mounts: volumes.map((Source, index) => ({
      ...{ Type: 'volume', Source, Target: `${folder}/${index}`, ReadOnly: true },
      VolumeOptions: { NoCopy: true },
    })),
  },
})

/** Kilobytes of each, in their order; `unknownKb` for what could not be counted. */
const readSizes = async (
  { engine, containers, holderImage }: CacheSizeParts,
  volumes: readonly string[],
): Promise<number[]> => {
  const signal = AbortSignal.timeout(measureMs)
  const made = containers.open()
  const name = made.name('container')
  let said = ''
  try {
    const body = bodyOf(await holderImage(signal), volumes)
    const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', { query: { name }, body })
    for await (const text of readOutput(engine, Id, signal)) said = (said + text).slice(-65_536)
  } catch (error) {
    if (!signal.aborted) throw error
  } finally {
    await made.end()
  }
  return volumes.map((_, index) => {
    const size = new RegExp(`^(\\d+)\\s+${folder}/${index}$`, 'm').exec(said)?.[1]
    return size === undefined ? unknownKb : Number(size)
  })
}

export const measureCaches = async (
  parts: CacheSizeParts,
  owner: ImageOwner,
  volumes: readonly string[],
): Promise<void> => {
  const sizes = volumes.length === 0 ? [] : await readSizes(parts, volumes)
  for (const [index, volume] of volumes.entries()) await parts.caches.measure(owner, volume, sizes[index]!)
  await parts.caches.tidy(owner.clusterId)
}
