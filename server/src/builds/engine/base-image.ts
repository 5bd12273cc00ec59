/**
 * The base images of Dockerfiles. Promises that an organization gets only what its registries give it now, with its own
 * logins, or what it built itself; other images on the engine are not used. One exception needs no registry:
 * `busybox:1` is made from the machine's own busybox if it cannot be pulled, so that the sample works without network
 * access.
 */
import { findImage } from '../../images/engine-images.ts'
import type { OrganizationImages, RegistryLogins } from '../../images/images.ts'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import { splitTag } from '../../lib/docker/image-name.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { ImageStore } from '../image-store.ts'
import { createOwnBusybox } from './own-busybox.ts'

/** The base of every image around a tool. */
const usualBase = 'busybox:1'
const busyboxTags = new Set(['1', 'latest'])
const publicRegistry = 'docker.io'

export interface BaseImageParts {
  engine: Engine
  images: Pick<OrganizationImages, 'pull'>
  store: ImageStore
  /** The organization's own registries at a host. */
  registryLogins: RegistryLogins
  /** A statically linked busybox. Default /bin/busybox. */
  busyboxPath?: string
}

/** Which organization asks for which image. */
export interface BaseImageRequest {
  organizationId: string
  name: string
}

const refuse = (name: string, why: string): DeploymentError =>
  new DeploymentError('build_refused', `Base image ${name.slice(0, 300)} is refused: ${why}`)

const imageId = /^(?:sha256:)?([0-9a-f]{64})$/

/** Host, path and tag or digest of an image's name, with what the public registry lets be left out. */
const readImageName = (name: string): { host: string; repository: string; tag: string } => {
  const fits = /^[a-zA-Z0-9][a-zA-Z0-9._:/@-]{0,500}$/.test(name)
  const { name: path, tag } = splitTag(name)
  // A name may have a tag and a digest: the digest takes precedence.
  const plain = name.includes('@') ? splitTag(path).name : path
  const [first = '', ...rest] = plain.split('/')
  const hasHost = rest.length > 0 && (first === 'localhost' || /[.:]/.test(first))
  const host = hasHost ? first : publicRegistry
  const inside = hasHost ? rest.join('/') : plain
  const isTag = tag.includes(':') ? /^sha256:[0-9a-f]{64}$/.test(tag) : /^\w[\w.-]{0,127}$/.test(tag)
  if (!fits || !isTag || !/^[a-z0-9][a-z0-9._/-]*$/.test(inside) || inside.includes('//'))
    throw new DeploymentError('build_failed', `The build failed: ${name.slice(0, 300)} is not a valid image name.`)
  if (plain.startsWith('slipway/')) throw refuse(name, 'names that begin with slipway/ are reserved for Slipway.')
  const isOfficial = host === publicRegistry && !inside.includes('/')
  return { host, repository: `${host}/${isOfficial ? 'library/' : ''}${inside}`, tag }
}

const isBusybox = ({ repository, tag }: { repository: string; tag: string }): boolean =>
  repository === 'docker.io/library/busybox' && busyboxTags.has(tag)

export const createBaseImages = ({ engine, images, store, registryLogins, busyboxPath }: BaseImageParts) => {
  const ownBusybox = createOwnBusybox(engine, busyboxPath)

  const fail = (name: string, cause: Error) =>
    cause instanceof DeploymentError && cause.next !== 'stop'
      ? cause
      : new DeploymentError('build_failed', `Base image ${name} is not available: ${cause.message.slice(0, 400)}`, {
          cause,
        })

  /** An image that the organization built itself, by its id. */
  const findOwn = async ({ organizationId, name }: BaseImageRequest, signal: AbortSignal): Promise<string | null> => {
    const hex = imageId.exec(name)?.[1]
    if (hex === undefined) return null
    const id = `sha256:${hex}`
    if ((await store.owns(organizationId, id)) && (await findImage(engine, id, signal)) !== null) return id
    throw refuse(name, 'this organization has not built an image with this id.')
  }

  /** Tries each of the organization's logins for that registry, then none. */
  const pull = async (
    { organizationId, name }: BaseImageRequest,
    onText: (text: string) => void,
    signal: AbortSignal,
  ) => {
    const { host, repository, tag } = readImageName(name)
    const known = await registryLogins(organizationId, host)
    let first: unknown = null
    for (const { origin, login } of [...known, { origin: null, login: null }])
      try {
        const progress = (text: string) => onText(`${text}\n`)
        return (await images.pull({ organizationId, repository, tag, origin, login }, progress, signal)).imageId
      } catch (error) {
        signal.throwIfAborted()
        if (!(error instanceof DeploymentError) || error.next !== 'stop') throw error
        first ??= error
      }
    throw first
  }

  const pullOrMake = async (
    wanted: BaseImageRequest,
    onText: (text: string) => void,
    signal: AbortSignal,
  ): Promise<string> => {
    try {
      return await pull(wanted, onText, signal)
    } catch (error) {
      if (signal.aborted || !(error instanceof DeploymentError) || error.code === 'build_refused') throw error
      if (!isBusybox(readImageName(wanted.name))) throw fail(wanted.name, error)
      onText(`${wanted.name} cannot be pulled: using the busybox of this machine instead.\n`)
      return ownBusybox().catch((cause: Error) => Promise.reject(fail(wanted.name, cause)))
    }
  }

  return {
    /** What the name referred to when it was last pulled; null if unknown or no longer there. Asks no registry. */
    async find({ organizationId, name }: BaseImageRequest, signal: AbortSignal): Promise<string | null> {
      if (imageId.test(name)) return findOwn({ organizationId, name }, signal)
      readImageName(name)
      const known = await store.findBase(organizationId, name)
      return known === null ? null : findImage(engine, known, signal)
    },
    /** The id of the image that the name refers to now; rejects with `build_failed` or `build_refused`. */
    async ensure(wanted: BaseImageRequest, onText: (text: string) => void, signal: AbortSignal): Promise<string> {
      const own = await findOwn(wanted, signal)
      if (own !== null) return own
      const id = await pullOrMake(wanted, onText, signal)
      await store.saveBase(wanted.organizationId, wanted.name, id)
      return id
    },
    /** The operator's own busybox; the engine's image of that name if the machine has none. */
    async operators(signal: AbortSignal): Promise<string> {
      try {
        return await ownBusybox()
      } catch (error) {
        const held = await findImage(engine, usualBase, signal)
        if (held !== null) return held
        throw fail(usualBase, error as Error)
      }
    },
  }
}
