/**
 * The base images of Dockerfiles. Promises that an organization gets only what its registries give it now, with its own
 * logins, or what it built itself; other images on the engine are not used. One exception needs no registry:
 * `busybox:1` is made from the machine's own busybox if it cannot be pulled, so that the sample works without network
 * access.
 */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { pack } from 'tar-stream'
import { findImage, finish } from '../../images/engine-images.ts'
import type { OrganizationImages, RegistryLogins } from '../../images/images.ts'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import { splitTag } from '../../lib/docker/image-name.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { exec } from '../../lib/exec.ts'
import { readableOf } from '../../lib/tar-streams.ts'
import type { ImageStore } from '../image-store.ts'

// An image of this machine's own static busybox: it replaces `busybox:1` if no registry answers, is the base for tools
// of the operator, and holds the networks of builds.
const passwd = 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n'
const recipe = 'FROM scratch\nCOPY root /\nENV PATH=/bin:/sbin:/usr/bin:/usr/sbin\nCMD ["sh"]\n'

/** A file system of one program and a link to it for each of its names. */
const busyboxContext = async (binary: string, content: Buffer): Promise<Readable> => {
  const listed = await exec(binary, ['--list-full'], { env: {}, timeoutMs: 10_000 })
  if (listed.code !== 0) throw new Error(`${binary} --list-full failed`)
  const archive = pack()
  archive.entry({ name: 'Dockerfile' }, recipe)
  archive.entry({ name: 'root/bin/busybox', mode: 0o755 }, content)
  for (const path of listed.stdout.trim().split('\n'))
    if (path !== 'bin/busybox') archive.entry({ name: `root/${path}`, type: 'symlink', linkname: '/bin/busybox' })
  archive.entry({ name: 'root/tmp', type: 'directory', mode: 0o1777 })
  archive.entry({ name: 'root/root', type: 'directory', mode: 0o700 })
  archive.entry({ name: 'root/etc/passwd' }, passwd)
  archive.entry({ name: 'root/etc/group' }, 'root:x:0:\nnogroup:x:65534:\n')
  archive.finalize()
  return readableOf(archive)
}

/** Creates the image and names it. Concurrent calls get the same name. */
export const buildBusybox = async (engine: Engine, tag: string, binary = '/bin/busybox'): Promise<void> => {
  // The engine's cached layers are not used for these.
  const query = { version: 1, t: tag, rm: 1, forcerm: 1, nocache: 1 }
  const body = await busyboxContext(binary, await readFile(binary))
  await finish(await engine.stream('POST', '/build', { query, body, deadlineMs: 60_000 }))
}

/** Creates the image once for each content of the program; returns its id. Rejects if the machine has no busybox. */
const createOwnBusybox = (engine: Engine, binary = '/bin/busybox') => {
  let making: Promise<string> | null = null

  const make = async (): Promise<string> => {
    const content = await readFile(binary)
    const tag = `slipway/tool-busybox:${createHash('sha256').update(recipe).update(content).digest('hex').slice(0, 16)}`
    const there = await findImage(engine, tag)
    if (there !== null) return there
    await buildBusybox(engine, tag, binary)
    const made = await findImage(engine, tag)
    if (made === null) throw new Error('the engine does not have it afterwards')
    return made
  }

  return async (): Promise<string> => {
    const known = making === null ? null : await making.then((id) => findImage(engine, id)).catch(() => null)
    if (known !== null) return known
    making = make()
    return making
  }
}

/** The base of every image around a tool that names no image. */
const usualBase = 'busybox:1'
const busyboxTags = new Set(['1', 'latest'])
const publicRegistry = 'docker.io'

export interface BaseImageParts {
  engine: Engine
  images: Pick<OrganizationImages, 'pull'>
  store: ImageStore
  registryLogins: RegistryLogins
  /** A statically linked busybox. Default /bin/busybox. */
  busyboxPath?: string
}

interface BaseImageRequest {
  organizationId: string
  name: string
}

const refuse = (name: string, why: string): DeploymentError =>
  new DeploymentError('build_refused', `Base image ${name.slice(0, 300)} is refused: ${why}`)

const imageId = /^(?:sha256:)?([0-9a-f]{64})$/

/** Host, path and tag or digest of an image's name, with the parts that the public registry allows to be left out. */
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
    /**
     * The image that the name referred to when it was last pulled; null if unknown or no longer on the engine. Asks no
     * registry.
     */
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
