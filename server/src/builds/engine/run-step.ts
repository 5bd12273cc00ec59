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
const labelsOf = ({ Config }: ImageDetail): Record<string, string> =>
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

const commentOf = ({ words, args }: Step): string =>
  [
    ...(args.length === 0 ? [] : [`|${args.length}`, ...args.map(([name, value]) => `${name}=${value}`)]),
    ...words,
  ].join(' ')

/** Runs a container to its end, then lets `use` work with it and with its exit code, and removes it. */
const withEnded = async (
  engine: Engine,
  made: BuildLeftovers,
  { body, started, onText }: { body: object; started?(id: string): void; onText(text: string): void },
  use: (id: string, exitCode: number) => Promise<string>,
  signal: AbortSignal,
): Promise<string> => {
  const name = made.name('container')
  try {
    // Not aborted by the signal: the engine would continue, and create it after it was removed.
    const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', { query: { name }, body })
    signal.throwIfAborted()
    started?.(Id)
    for await (const text of readOutput(engine, Id, signal)) onText(text)
    const { StatusCode } = await engine.call<{ StatusCode: number }>('POST', `/containers/${Id}/wait`, { signal })
    return await use(Id, StatusCode)
  } catch (error) {
    signal.throwIfAborted()
    throw error instanceof EngineError ? new StepFailed(error.message, { cause: error }) : error
  } finally {
    await made.removeContainer(name)
  }
}

/** Returns the id of the image after the step. Rejects with `StepFailed`. */
export const runStep = (
  engine: Engine,
  made: BuildLeftovers,
  step: Step,
  onText: (text: string) => void,
  signal: AbortSignal,
): Promise<string> => {
  const started = (id: string): void => onText(` ---> Running in ${id.slice(0, 12)}\n`)
  const use = async (id: string, code: number): Promise<string> => {
    const words = step.words.join(' ')
    if (code !== 0) throw new StepFailed(`The command '${words}' returned a non-zero code: ${code}${meaningOf(code)}`)
    const image = await commit(engine, id, step.parent, commentOf(step), signal)
    onText(` ---> ${image.slice('sha256:'.length).slice(0, 12)}\n`)
    return image
  }
  return withEnded(engine, made, { body: bodyOf(step), started, onText }, use, signal)
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

export const runTool = (
  engine: Engine,
  made: BuildLeftovers,
  { parent, script, words, tools, limits }: ImageTool,
  signal: AbortSignal,
): Promise<string> => {
  const busybox = `${toolsFolder}/busybox`
  const run = [busybox, 'sh', '-c', script, busybox, ...words]
  const plain = bodyOf({ parent, words: run, args: [], limits, networkMode: 'none' })
  const HostConfig = {
    ...plain.HostConfig,
    CapDrop: ['ALL'],
    CapAdd: ['DAC_OVERRIDE', 'FOWNER', 'CHOWN'],
    Mounts: [{ Type: 'volume', Source: tools, Target: toolsFolder, ReadOnly: true, VolumeOptions: { NoCopy: true } }],
  }
  let said = ''
  const onText = (text: string): void => {
    said = (said + text).slice(-500)
  }
  const use = async (id: string, code: number): Promise<string> => {
    if (code !== 0) throw new StepFailed(said.trim() || `it ended with code ${code}`)
    return commit(engine, id, parent, 'slipway', signal)
  }
  const body = { ...plain, User: '0:0', WorkingDir: '/', HostConfig }
  return withEnded(engine, made, { body, onText }, use, signal)
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
