/**
 * One RUN of a Dockerfile: our own container, with limits and few capabilities, and an image of the result. Knows no
 * Dockerfiles. Everything it creates is in the build's cleanup list before it is created.
 */
import { type Engine, EngineError } from '../../lib/docker/docker-engine.ts'
import { explainExitCode } from '../../lib/exit-codes.ts'
import type { BuildLeftovers } from './build-containers.ts'
import { readOutput } from './container-output.ts'
import { commandOf, configAfter, type ImageDetail, withArgs, withPrelude } from './image-config.ts'

/** When the last of 4096 processes ends, Linux blocks all others for up to 50 ms; with half as many, for 10. */
const pidsLimit = 2048
/** A quarter of a service's: when processors are short, builds wait before services do. */
const cpuShares = 256
const maxComment = 4000
const commitMs = 20 * 60_000

export interface StepLimits {
  memoryMb: number
  cpuMillicores: number
}

interface Step {
  parent: ImageDetail
  words: string[]
  args: [name: string, value: string][]
  networkMode: string
  limits: StepLimits
  mounts?: EngineMounts
  /** A file in the container that the shell reads before the command: variables that nothing else may see. */
  preludePath?: string | null
}

/** As the engine's API has them. */
export interface EngineMounts {
  Mounts: object[]
  Tmpfs: Record<string, string>
}

/** The step's command exited with a code other than 0, or could not be started. */
export class StepFailed extends Error {}

/** For codes with a meaning besides failure. */
const meaningOf = (exitCode: number): string => (exitCode < 126 ? '' : `: ${explainExitCode(exitCode)}`)

/** The engine's message for a failed command. */
const showWords = (words: string[]): string => words.join(' ')

const hostConfig = ({ networkMode, limits, mounts }: Step) => {
  const bytes = limits.memoryMb * 2 ** 20
  return {
    NetworkMode: networkMode,
    CapDrop: ['NET_RAW', 'MKNOD'],
    SecurityOpt: ['no-new-privileges'],
    PidsLimit: pidsLimit,
    Memory: bytes,
    MemorySwap: bytes,
    CpuShares: cpuShares,
    CpuPeriod: 100_000,
    CpuQuota: Math.max(1000, Math.round(limits.cpuMillicores * 100)),
    LogConfig: { Type: 'none' },
    ...mounts,
  }
}

/**
 * A container inherits its image's labels, and Slipway identifies its own containers by labels that begin with
 * slipway.: those from a Dockerfile are emptied. The image keeps its parent's, so this does not affect it.
 */
export const labelsOf = ({ Config }: ImageDetail): Record<string, string> =>
  Object.fromEntries(
    Object.keys(Config?.Labels ?? {})
      .filter((name) => name.startsWith('slipway.'))
      .map((name) => [name, '']),
  )

export const bodyOf = (step: Step) => {
  const { parent, words, args, preludePath = null } = step
  const probed = (parent.Config?.Healthcheck ?? null) !== null
  return {
    Image: parent.Id,
    ...commandOf(parent, withArgs(withPrelude(words, preludePath), args)),
    Labels: labelsOf(parent),
    ...(probed ? { Healthcheck: { Test: ['NONE'] } } : {}),
    HostConfig: hostConfig(step),
  }
}

/** Commits the container as an image, configured like its parent; returns its id. */
const commit = async (
  engine: Engine,
  container: string,
  parent: ImageDetail,
  comment: string,
  signal: AbortSignal,
): Promise<string> => {
  const query = { container, pause: false, comment: comment.slice(0, maxComment), author: parent.Author ?? '' }
  const body = configAfter(parent)
  return (await engine.call<{ Id: string }>('POST', '/commit', { query, body, signal, deadlineMs: commitMs })).Id
}

/** The text that the classic builder writes into an image's history. */
const commentOf = ({ words, args }: Step): string =>
  [
    ...(args.length === 0 ? [] : [`|${args.length}`, ...args.map(([name, value]) => `${name}=${value}`)]),
    ...words,
  ].join(' ')

/** Returns the id of the image after the step. Rejects with `StepFailed`. */
export const runStep = async (
  engine: Engine,
  made: BuildLeftovers,
  step: Step,
  onText: (text: string) => void,
  signal: AbortSignal,
): Promise<string> => {
  const name = made.name('container')
  try {
    // Not aborted by the signal: the engine would continue, and create it after it was removed.
    const options = { query: { name }, body: bodyOf(step) }
    const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', options)
    signal.throwIfAborted()
    onText(` ---> Running in ${Id.slice(0, 12)}\n`)
    for await (const text of readOutput(engine, Id, signal)) onText(text)
    const { StatusCode } = await engine.call<{ StatusCode: number }>('POST', `/containers/${Id}/wait`, { signal })
    if (StatusCode !== 0)
      throw new StepFailed(
        `The command '${showWords(step.words)}' returned a non-zero code: ${StatusCode}${meaningOf(StatusCode)}`,
      )
    const image = await commit(engine, Id, step.parent, commentOf(step), signal)
    onText(` ---> ${image.slice('sha256:'.length).slice(0, 12)}\n`)
    return image
  } catch (error) {
    signal.throwIfAborted()
    throw error instanceof EngineError ? new StepFailed(error.message, { cause: error }) : error
  } finally {
    await made.removeContainer(name)
  }
}

/** For a container that is never started: an image is made from it. */
export const bodyWithoutTriggers = (parent: ImageDetail) => ({
  Image: parent.Id,
  ...commandOf(parent, ['/slipway-never-started']),
  Labels: labelsOf(parent),
  HostConfig: { NetworkMode: 'none' },
})

/** A program of ours that changes a tenant's image: with our own shell, without a network. */
interface ImageTool {
  parent: ImageDetail
  script: string
  words: string[]
  /** A volume with `busybox` in it. */
  tools: string
  limits: StepLimits
}

/** Mounts in this folder leave nothing in the image: the engine creates it for each container. */
const toolsFolder = '/dev/slipway-tools'

/** Returns the id of the changed image. */
export const runTool = async (
  engine: Engine,
  made: BuildLeftovers,
  { parent, script, words, tools, limits }: ImageTool,
  signal: AbortSignal,
): Promise<string> => {
  const name = made.name('container')
  const busybox = `${toolsFolder}/busybox`
  const step = {
    parent,
    words: [busybox, 'sh', '-c', script, busybox, ...words],
    args: [],
    limits,
    networkMode: 'none',
  }
  const plain = bodyOf(step)
  const HostConfig = {
    ...plain.HostConfig,
    CapDrop: ['ALL'],
    CapAdd: ['DAC_OVERRIDE', 'FOWNER', 'CHOWN'],
    Mounts: [{ Type: 'volume', Source: tools, Target: toolsFolder, ReadOnly: true, VolumeOptions: { NoCopy: true } }],
  }
  try {
    const body = { ...plain, User: '0:0', WorkingDir: '/', HostConfig }
    const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', { query: { name }, body })
    signal.throwIfAborted()
    let said = ''
    for await (const text of readOutput(engine, Id, signal)) said = (said + text).slice(-500)
    const { StatusCode } = await engine.call<{ StatusCode: number }>('POST', `/containers/${Id}/wait`, { signal })
    if (StatusCode !== 0) throw new StepFailed(said.trim() || `it ended with code ${StatusCode}`)
    return await commit(engine, Id, parent, 'slipway', signal)
  } catch (error) {
    signal.throwIfAborted()
    throw error instanceof EngineError ? new StepFailed(error.message, { cause: error }) : error
  } finally {
    await made.removeContainer(name)
  }
}

/** The same image without its ONBUILD triggers, which we run ourselves. */
export const withoutTriggers = async (
  engine: Engine,
  made: BuildLeftovers,
  parent: ImageDetail,
  signal: AbortSignal,
): Promise<string> => {
  const name = made.name('container')
  const body = bodyWithoutTriggers(parent)
  try {
    const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', { query: { name }, body })
    return await commit(engine, Id, parent, 'without ONBUILD', signal)
  } finally {
    await made.removeContainer(name)
  }
}
