/**
 * Mounts of a RUN besides caches: files of the context and of images, secrets, and scripts. They are in one volume
 * that lives as long as the step; the step gets each of its entries by its path, never the volume. Promises that an
 * entry is a file or a folder of ours: the engine's machine would follow a link.
 */
import { extract, type Pack, pack } from 'tar-stream'
import { type Engine, isEngineError } from '../../lib/docker/docker-engine.ts'
import { readableOf } from '../../lib/tar-streams.ts'
import type { BuildLeftovers } from './build-containers.ts'
import type { HeldCache } from './step-caches.ts'

/** The folder in the image with its content, and in the container that fills it. */
export const mountFolder = '/slipway-mount'
const cacheFolder = '/slipway-cache'
const neverStarted = ['/slipway-never-started']

export interface OwnFile {
  name: string
  text: string
  uid: number
  gid: number
  mode: number
}

interface VolumeContent {
  /** Id of an image of ours that has `mountFolder`, or of any other: then the volume starts empty. */
  image: string
  /** Entries that are in the image. */
  entries: string[]
  files: OwnFile[]
  /** Caches that have no owner and mode yet. */
  newCaches: HeldCache[]
}

export interface MountVolume {
  /** Its path on the engine's machine. */
  path: string
  remove(): Promise<void>
}

/** The type of the entry at a path of a container: `file`, `directory`, `symlink` …; null if there is none. */
export const kindAt = async (
  engine: Engine,
  container: string,
  path: string,
  signal: AbortSignal,
): Promise<string | null> => {
  try {
    const stream = await engine.stream('GET', `/containers/${container}/archive`, { query: { path }, signal })
    try {
      const entries = extract()
      // A reader that leaves early ends it, which is not a failure.
      entries.on('error', () => {})
      stream.on('error', (error) => entries.destroy(error))
      for await (const entry of stream.pipe(entries)) return entry.header.type ?? null
      return null
    } finally {
      stream.destroy()
    }
  } catch (error) {
    signal.throwIfAborted()
    if (isEngineError(error, 404)) return null
    throw error
  }
}

const addFile = (archive: Pack, { name, text, uid, gid, mode }: OwnFile): void => {
  archive.entry({ name: `${mountFolder.slice(1)}/${name}`, uid, gid, mode }, text)
}

const ownContent = ({ files, newCaches }: VolumeContent): Pack => {
  const archive = pack()
  for (const file of files) addFile(archive, file)
  for (const [index, { mount }] of newCaches.entries()) {
    const { uid, gid, mode } = mount
    archive.entry({ name: `${cacheFolder.slice(1)}/${index}`, type: 'directory', uid, gid, mode })
  }
  archive.finalize()
  return archive
}

const mountOf = (Source: string, Target: string, NoCopy: boolean) => ({
  ...{ Type: 'volume', Source, Target },
  VolumeOptions: { NoCopy },
})

export const createMountVolume = async (
  engine: Engine,
  made: BuildLeftovers,
  content: VolumeContent,
  signal: AbortSignal,
): Promise<MountVolume> => {
  const volume = made.name('volume')
  const name = made.name('container')
  const caches = content.newCaches.map(({ volume }, index) => mountOf(volume, `${cacheFolder}/${index}`, true))
  const body = {
    Image: content.image,
    Entrypoint: neverStarted,
    Cmd: [],
    HostConfig: { NetworkMode: 'none', Mounts: [mountOf(volume, mountFolder, false), ...caches] },
  }
  const remove = (): Promise<void> => made.removeVolume(volume)
  try {
    const { Mountpoint } = await engine.call<{ Mountpoint: string }>('POST', '/volumes/create', {
      body: { Name: volume },
    })
    await engine.call('POST', '/containers/create', { query: { name }, body, deadlineMs: 20 * 60_000 })
    signal.throwIfAborted()
    if (content.files.length + content.newCaches.length > 0) {
      const archive = readableOf(ownContent(content))
      await engine.call('PUT', `/containers/${name}/archive`, { query: { path: '/' }, body: archive, signal })
    }
    for (const entry of content.entries) {
      const kind = await kindAt(engine, name, `${mountFolder}/${entry}`, signal)
      if (kind !== 'file' && kind !== 'directory') throw new Error(`a mount of a step is ${kind ?? 'not there'}`)
    }
    return { path: Mountpoint, remove }
  } catch (error) {
    await made.removeContainer(name)
    await remove()
    throw error
  } finally {
    await made.removeContainer(name)
  }
}
