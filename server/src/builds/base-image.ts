/**
 * The images a Dockerfile starts from: pulled before the build, so that their ids are part of the content key. The one
 * exception needs no registry: `busybox:1` is made from the machine's own static busybox where it cannot be pulled, so
 * that the sample works on a machine without a way out.
 */
import { readFile } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { pack } from 'tar-stream'
import { type Engine, isEngineError } from '../lib/docker-engine.ts'
import { DeploymentError } from '../lib/errors.ts'
import { exec } from '../lib/exec.ts'
import { splitTag } from '../lib/image-name.ts'
import { OutboundFailed, OutboundRefused } from '../lib/outbound.ts'
import type { CheckHost } from './git-remote.ts'

const busyboxNames = new Set(['busybox', 'busybox:1', 'busybox:latest'])
/** What every image around a tool starts from. */
export const usualBase = 'busybox:1'
const busyboxPullMs = 10_000
const pullMs = 20 * 60_000

export interface BaseImageParts {
  engine: Engine
  checkHost: CheckHost
  /** A statically linked busybox. Default /bin/busybox. */
  busyboxPath?: string
  /** Makes an image around a tool; false for a name that is none of those. */
  makeTool?(image: string, base: () => Promise<unknown>): Promise<boolean>
}

/** The registry that an image's name tells, null for the engine's own default. */
const registryOf = (image: string): string | null => {
  const host = image.slice(0, Math.max(image.indexOf('/'), 0))
  return host === 'localhost' || /[.:]/.test(host) ? host : null
}

/** Reads an answer of JSON lines to its end; the engine tells a failure in its last line. */
export const finish = async (stream: Readable): Promise<void> => {
  let last = ''
  for await (const chunk of stream.setEncoding('utf8')) last = (last + chunk).slice(-65_536)
  for (const line of last.split('\n')) {
    const error = /"error":("(?:[^"\\]|\\.)*")/.exec(line)?.[1]
    if (error !== undefined) throw new Error(JSON.parse(error) as string)
  }
}

/** Id of an image on the engine, null when it is not there. */
export const findImage = async (engine: Engine, image: string, signal?: AbortSignal): Promise<string | null> => {
  try {
    const path = `/images/${image.split('/').map(encodeURIComponent).join('/')}/json`
    return (await engine.call<{ Id: string }>('GET', path, { signal })).Id
  } catch (error) {
    if (isEngineError(error, 404, 400)) return null
    throw error
  }
}

const passwd = 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n'
const recipe = 'FROM scratch\nCOPY root /\nENV PATH=/bin:/sbin:/usr/bin:/usr/sbin\nCMD ["sh"]\n'

/** A file system of one program and a link to it for each of its names. */
const busyboxContext = async (binary: string): Promise<Readable> => {
  const listed = await exec(binary, ['--list-full'], { env: {}, timeoutMs: 10_000 })
  if (listed.code !== 0) throw new Error(`${binary} --list-full failed`)
  const archive = pack()
  archive.entry({ name: 'Dockerfile' }, recipe)
  archive.entry({ name: 'root/bin/busybox', mode: 0o755 }, await readFile(binary))
  for (const path of listed.stdout.trim().split('\n'))
    if (path !== 'bin/busybox') archive.entry({ name: `root/${path}`, type: 'symlink', linkname: '/bin/busybox' })
  archive.entry({ name: 'root/tmp', type: 'directory', mode: 0o1777 })
  archive.entry({ name: 'root/root', type: 'directory', mode: 0o700 })
  archive.entry({ name: 'root/etc/passwd' }, passwd)
  archive.entry({ name: 'root/etc/group' }, 'root:x:0:\nnogroup:x:65534:\n')
  archive.finalize()
  return archive as unknown as Readable
}

/** Makes `busybox:1` from the machine's busybox. Racing calls end with the same tag. */
export const buildBusybox = async (engine: Engine, tag: string, binary = '/bin/busybox'): Promise<void> => {
  const query = { t: tag, rm: 1, forcerm: 1 }
  await finish(await engine.stream('POST', '/build', { query, body: await busyboxContext(binary), deadlineMs: 60_000 }))
}

export const createBaseImages = ({ engine, checkHost, busyboxPath, makeTool }: BaseImageParts) => {
  const fail = (image: string, why: string, cause?: unknown) =>
    new DeploymentError('build_failed', `The base image ${image} is not there and could not be pulled: ${why}`, {
      cause,
    })

  const checkRegistry = async (image: string): Promise<void> => {
    const host = registryOf(image)
    if (host === null) return
    const url = URL.parse(`https://${host}/`)
    if (url === null) throw fail(image, 'its registry has no valid name.')
    try {
      await checkHost(url)
    } catch (error) {
      if (error instanceof OutboundRefused || error instanceof OutboundFailed) throw fail(image, error.message, error)
      throw error
    }
  }

  const pull = async (image: string, signal: AbortSignal): Promise<void> => {
    await checkRegistry(image)
    const { name, tag } = splitTag(image)
    const limit = AbortSignal.any([signal, AbortSignal.timeout(busyboxNames.has(image) ? busyboxPullMs : pullMs)])
    const query = { fromImage: name, tag }
    try {
      await finish(await engine.stream('POST', '/images/create', { query, signal: limit, deadlineMs: pullMs }))
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof DeploymentError && !limit.aborted) throw error
      throw fail(image, limit.aborted ? 'it took too long.' : (error as Error).message.slice(0, 300), error)
    }
  }

  const pullOrMake = async (image: string, onText: (text: string) => void, signal: AbortSignal): Promise<void> => {
    onText(`Pulling the base image ${image}\n`)
    try {
      await pull(image, signal)
    } catch (error) {
      if (signal.aborted || !busyboxNames.has(image)) throw error
      onText(`${image} cannot be pulled: it is made from this machine's own busybox.\n`)
      await buildBusybox(engine, image, busyboxPath).catch((cause: unknown) => {
        throw fail(image, `and could not be made: ${(cause as Error).message}`, cause)
      })
    }
  }

  /** Makes the image be there and answers its id; rejects with `build_failed`. */
  const ensure = async (image: string, onText: (text: string) => void, signal: AbortSignal): Promise<string> => {
    const there = await findImage(engine, image, signal)
    if (there !== null) return there
    const isTool = (await makeTool?.(image, () => ensure(usualBase, onText, signal))) === true
    if (!isTool) await pullOrMake(image, onText, signal)
    const id = await findImage(engine, image, signal)
    if (id === null) throw fail(image, 'the engine does not have it afterwards.')
    return id
  }

  return { find: (image: string, signal: AbortSignal) => findImage(engine, image, signal), ensure }
}
