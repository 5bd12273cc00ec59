/** From a request body to an existing container: with its network, image and files, within the limits of the host. */
import { randomBytes } from 'node:crypto'
import { pack } from 'tar-stream'
import { isDiskFull } from '../../lib/disk-full.ts'
import { type Engine, isEngineError } from '../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { Progress, Workload } from '../runtime.ts'
import type { Containers } from './containers.ts'
import { type ContainerBody, labels, taskName } from './describe.ts'
import { removeContainer } from './endings.ts'
import { createWithGiven, type Given, holderOf } from './given-folders.ts'
import { type EngineImages, isImageMissing, localName } from './images.ts'
import type { Networks } from './network/network.ts'
import { createVolumeOwners } from './volume-owners.ts'
import type { Volumes } from './volumes.ts'

// Refusals of the engine to create or start a container, as one sentence for the service's owner. Pure.
const mostChars = 300

interface Cause {
  pattern: RegExp
  sentence(found: RegExpExecArray): string
}

/** A path of the engine's machine as the program sees it. */
const insideOf = (path: string): string => path.replace(/^.*?\/(?:merged|rootfs|mnt\/\w+)(?=\/|$)/, '') || '/'

const causes: readonly Cause[] = [
  {
    pattern: /listen \w+ ([\d.]+):\d+: bind: cannot assign requested address/,
    sentence: ([, address]) =>
      `The engine cannot publish ports at ${address}: its machine does not have this address. Correct the address that the cluster names.`,
  },
  {
    pattern: /no command specified/i,
    sentence: () =>
      'The image says no command to run: add CMD or ENTRYPOINT to its Dockerfile, or set an entrypoint or arguments of the service.',
  },
  {
    pattern: /source (\S+) is not (?:a )?directory/i,
    sentence: ([, source]) =>
      `A volume cannot be mounted at ${insideOf(source!)}, which is a file in the image: mount it at the folder that contains the file.`,
  },
]

const insideOfStore = (path: string): string => {
  const inside = insideOf(path)
  return inside === path ? 'a path of the engine' : inside
}

/** The engine's own message, without its and our internals: paths on its machine, ids, names that we made. */
const cleaned = (message: string): string =>
  message
    .replaceAll(/\/[^\s"':]*\/(?:overlay2|aufs|btrfs|zfs|vfs|containers|volumes|containerd)\/[^\s"':]*/g, insideOfStore)
    .replaceAll(/\b[0-9a-f]{64}\b/g, 'the container')
    .replaceAll(/\bslipway-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g, 'of the environment')
    .replaceAll(/\bslipway-[\w.-]+/g, 'of the service')
    .replaceAll(/\s+/g, ' ')
    .trim()
    .slice(0, mostChars)

/** Errors other than an answer of the engine, and a full disk, are returned unchanged. */
export const explainRefusal = (error: unknown): unknown => {
  if (!isEngineError(error) || isDiskFull(error)) return error
  for (const { pattern, sentence } of causes) {
    const found = pattern.exec(error.message)
    if (found !== null) return new DeploymentError('start_failed', sentence(found), { cause: error })
  }
  const message = `The engine refused to start the container: ${cleaned(error.message)}`
  return new DeploymentError('start_failed', message, { cause: error })
}

const isNetworkMissing = (error: unknown): boolean =>
  isEngineError(error) && /network .*not found|could not find (network|bridge)/i.test(error.message)

export const isNameTaken = (error: unknown): boolean =>
  isEngineError(error, 409) && /already in use/i.test(error.message)

/** For a port or an address; or the network has been replaced meanwhile. */
export const isPlaceTaken = (error: unknown): boolean =>
  isEngineError(error) &&
  /port is already allocated|address already in use|failed to bind|does not belong to any of this/i.test(error.message)

const isRoot = (user: string): boolean => ['', '0', 'root'].includes(user.split(':')[0]!)

const packFiles = async (
  files: { path: string; content: string }[],
  mode: number,
  folders: readonly string[] = [],
): Promise<Buffer> => {
  const archive = pack()
  for (const path of folders) archive.entry({ name: path.replace(/^\/+/, ''), type: 'directory', mode: 0o1777 })
  for (const { path, content } of files) archive.entry({ name: path.replace(/^\/+/, ''), mode }, content)
  archive.finalize()
  const chunks: Buffer[] = []
  for await (const chunk of archive) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

export interface CreateContext {
  environmentId: string
  progress: Progress
  /** Ends the wait for a missing image; a create in progress is never aborted, or its container would be orphaned. */
  signal: AbortSignal
}

export interface Creator {
  /** Id of the new container. Rejects with an `EngineError` that `isNameTaken` knows, or a `DeploymentError`. */
  create(name: string, body: ContainerBody, context: CreateContext, given: Given): Promise<string>
  /** `folders`: made writable for any user in the container. With a read-only root, all is there already. */
  writeFiles(id: string, files: Workload['files'], folders?: readonly string[]): Promise<void>
  /** Starts it; a running one is left as it is. Rejects with an `EngineError` that `isPlaceTaken` knows. */
  start(id: string, environmentId: string): Promise<void>
}

interface CreatorParts {
  engine: Engine
  networks: Networks
  images: Pick<EngineImages, 'restore'>
  volumes: Pick<Volumes, 'sized'>
  inspect: Containers['inspect']
}

export const createCreator = ({ engine, networks, images, volumes, inspect }: CreatorParts): Creator => {
  let processors: Promise<number> | undefined

  /** The engine refuses more processors than it has; a smaller host then gives all of them. */
  const fitProcessors = async (body: ContainerBody): Promise<ContainerBody> => {
    const wanted = body.HostConfig.NanoCpus as number
    if (wanted <= 1e9) return body
    processors ??= engine.call<{ NCPU: number }>('GET', '/info').then(({ NCPU }) => NCPU)
    processors.catch(() => {
      processors = undefined
    })
    return { ...body, HostConfig: { ...body.HostConfig, NanoCpus: Math.min(wanted, (await processors) * 1e9) } }
  }

  const post = async (name: string, body: ContainerBody): Promise<string> =>
    (await engine.call<{ Id: string }>('POST', '/containers/create', { query: { name }, body })).Id

  const write: Creator['writeFiles'] = async (id, secret, folders = []) => {
    const files = secret.reveal()
    if (files.length + folders.length === 0) return
    const { Config, HostConfig } = await inspect(id)
    if (HostConfig.ReadonlyRootfs) return
    const body = await packFiles(files, isRoot(Config.User) ? 0o400 : 0o444, folders)
    await engine.call('PUT', `/containers/${id}/archive`, { query: { path: '/' }, body }).catch((error: unknown) => {
      throw explainRefusal(error)
    })
  }

  const makeAs = (name: string, body: ContainerBody, given: Given): Promise<string> =>
    body.HostConfig.ReadonlyRootfs === true
      ? createWithGiven(
          { post, write, remove: (id, volumes) => removeContainer(engine, id, volumes) },
          name,
          body,
          given,
        )
      : post(name, body)

  const make = (name: string, body: ContainerBody, given: Given): Promise<string> =>
    volumes.sized(body, (its) => makeAs(name, its, given))

  const giveVolumes = createVolumeOwners({
    engine,
    inspect,
    async withWritable(id, body, work) {
      if (body.HostConfig.ReadonlyRootfs !== true) return work(id)
      const taskId = `${body.Labels[labels.revision]}-owner-${randomBytes(6).toString('hex')}`
      const holder = await post(taskName(taskId), holderOf(body, taskId, []))
      await work(holder).finally(() => removeContainer(engine, holder))
    },
  })

  const start = async (id: string) => engine.call('POST', `/containers/${id}/start`, { deadlineMs: 60_000 })

  const create: Creator['create'] = async (name, described, { environmentId, progress, signal }, given) => {
    const organizationId = described.Labels[labels.organization] ?? ''
    const named = { ...described, Image: localName(organizationId, described.Image) }
    const isAlone = described.HostConfig.NetworkMode === 'none'
    const [body] = await Promise.all([fitProcessors(named), isAlone ? null : networks.ensure(environmentId)])
    const id = await make(name, body, given).catch(async (error: unknown) => {
      if (!isImageMissing(error)) throw error
      await images.restore(organizationId, described.Image, progress, signal)
      signal.throwIfAborted()
      return make(name, body, given)
    })
    await giveVolumes(id, body, signal)
    return id
  }

  /** Errors that callers can handle stay errors of the engine. */
  const refused = (error: unknown): unknown =>
    isNameTaken(error) || isPlaceTaken(error) ? error : explainRefusal(error)

  return {
    create: (...call) =>
      create(...call).catch((error: unknown) => {
        throw refused(error)
      }),
    writeFiles: write,
    start: async (id, environmentId) => {
      try {
        await start(id).catch(async (error: unknown) => {
          if (!isNetworkMissing(error)) throw error
          await networks.dropBroken(environmentId)
          await networks.ensure(environmentId)
          await start(id)
        })
      } catch (error) {
        throw refused(error)
      }
    },
  }
}
