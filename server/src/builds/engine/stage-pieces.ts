/**
 * The parts of a stage that the engine gets as our own Dockerfile: pieces between its RUN steps, in which the base and
 * every COPY --from are ids, and every value is literal. Each piece repeats earlier declarations that an image does
 * not store.
 */
import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import { orNull } from '../../lib/docker/docker-engine.ts'
import type { ImageStore } from '../image-store.ts'
import type { Origin, StagePlan } from '../preparation/build-plan.ts'
import type { ContextShape } from '../preparation/context-shape.ts'
import { unreadable } from '../preparation/dockerfile-lines.ts'
import type { BuildLeftovers } from './build-containers.ts'
import type { BuildLog } from './build-log.ts'
import type { BuildNetwork } from './build-network.ts'
import type { Downloads } from './downloads.ts'
import { buildPiece, type PieceLine } from './engine-build.ts'
import type { Values } from './engine-text.ts'
import type { ImageDetail } from './image-config.ts'
import type { StepLimits } from './run-step.ts'
import type { StepCaches } from './step-caches.ts'

export interface BuildScene {
  engine: Engine
  store: ImageStore
  made: BuildLeftovers
  network: BuildNetwork
  log: BuildLog
  signal: AbortSignal
  organizationId: string
  clusterId: string
  cacheScope: string
  /** Reuses no earlier result. */
  noCache: boolean
  /** See `ImageStore.cacheSecret`. */
  cacheSecret: string
  limits: StepLimits
  deadlineMs: number
  plan: StagePlan
  /** The ids of the base images by name. */
  bases: ReadonlyMap<string, string>
  /** Ids of the built stages, by their index. */
  stages: Map<number, string>
  /** The build's context with a Dockerfile of ours in it; without `needsFiles`, that one alone. */
  context(text: string, needsFiles: boolean, shape?: ContextShape): Promise<{ tar: Readable; dockerfile: string }>
  /** Secrets that steps may request, by name. */
  secrets: Readonly<Record<string, string>>
  caches: StepCaches
  usedCaches: Set<string>
  inspect(id: string): Promise<ImageDetail>
  holderImage(signal: AbortSignal): Promise<string>
  /** A volume with busybox, of this build. */
  tools(): Promise<string>
  /** Where a download is kept until it is in the image. */
  downloads: Downloads
  knowsStartInterval: boolean
  /** Runs a step, with the monitors that may abort it. */
  watch<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T>
}

/** The engine reads no longer lines. */
const maxLineChars = 60_000

export const shortId = (id: string): string => id.replace('sha256:', '').slice(0, 12)

/** Only as an id: 64 hex digits are never pulled, and are never the name of another image. */
export const bareId = (id: string): string => id.replace('sha256:', '')

export const inspectImage = (engine: Engine, id: string, signal: AbortSignal): Promise<ImageDetail> =>
  engine.call<ImageDetail>('GET', `/images/${id}/json`, { signal })

/** Null if the engine no longer has it. */
const isHeld = async ({ engine, signal }: BuildScene, id: string | null): Promise<string | null> =>
  id === null ? null : ((await orNull(inspectImage(engine, id, signal)))?.Id ?? null)

/** The result of `make`, which runs once for the same organization, scope, cluster, parent and instructions. */
export const once = async (
  scene: BuildScene,
  parent: string,
  what: unknown,
  make: () => Promise<string>,
): Promise<string> => {
  const { store, organizationId, clusterId, cacheScope, log } = scene
  const key = createHash('sha256')
    .update(JSON.stringify(['slipway-step-3', organizationId, clusterId, cacheScope, parent, what]))
    .digest('hex')
  const known = scene.noCache ? null : await isHeld(scene, await store.findStep(key))
  if (known !== null) {
    log.write(` ---> Using cache\n ---> ${shortId(known)}\n`)
    return known
  }
  const image = await make()
  await store.saveStep(scene, key, image)
  return image
}

interface PendingLine extends PieceLine {
  word: string
  needsFiles: boolean
  /** Values that cannot be written in the text: it refers to them by name. */
  values: Values
}

export interface StageState {
  image: string | null
  /** False for an image that other organizations may have too. */
  isOwn: boolean
  args: Map<string, string>
  /** Variables of the image including the pending lines. */
  env: Map<string, string>
  /** How many names of build arguments were given out. */
  names: number
  pending: PendingLine[]
  /** The next log line, after the pending ones. */
  notes: string[]
  triggers: PendingLine[]
  /** An earlier piece set the command. */
  hasCommand: boolean
  maintainer: string | null
}

export const describeInstruction = ({ plan }: BuildScene, { step, text }: { step: number; text: string }): string =>
  `Step ${step}/${plan.file.steps} : ${text}`

export const originId = (scene: BuildScene, origin: Origin): string | null => {
  if (origin.from === 'scratch') return null
  const id = origin.from === 'stage' ? scene.stages.get(origin.index) : scene.bases.get(origin.name)
  if (id === undefined) throw new Error('a stage or base image does not exist')
  return id
}

/** Earlier declarations that an image does not store. */
const repeated = async (scene: BuildScene, state: StageState): Promise<string[]> => {
  const { pending, hasCommand, maintainer, image } = state
  const words = pending.map(({ word }) => word)
  const entry = words.indexOf('ENTRYPOINT')
  const command = words.indexOf('CMD')
  const lines = maintainer === null || words.includes('MAINTAINER') ? [] : [maintainer]
  if (!hasCommand || entry === -1 || (command !== -1 && command < entry)) return lines
  // An ENTRYPOINT resets the base's command, but not one that the stage set itself.
  const { Config } = await inspectImage(scene.engine, image!, scene.signal)
  return [...lines, `CMD ${JSON.stringify(Config?.Cmd ?? [])}`]
}

const remember = (state: StageState): void => {
  for (const { word, text } of state.pending) {
    if (word === 'CMD') state.hasCommand = true
    if (word === 'MAINTAINER') state.maintainer = text
  }
  state.pending = []
}

const flushNotes = ({ log }: BuildScene, state: StageState): void => {
  log.write(state.notes.join(''))
  state.notes = []
}

/** Adds a line for the engine; it is logged after earlier entries. */
export const push = (state: StageState, line: PendingLine & { display: string; line: number }): void => {
  if (line.text.length > maxLineChars)
    throw unreadable(line.line, `it is longer than ${maxLineChars} characters once its variables have their values.`)
  state.pending.push({ ...line, display: `${state.notes.join('')}${line.display}` })
  state.notes = []
}

export const namesIn =
  ({ env, args }: StageState) =>
  (name: string): string | undefined =>
    env.get(name) ?? args.get(name)

interface FlushOptions {
  /** Even if nothing is pending. */
  isNeeded?: boolean
  /** Default: the files of the build as they are. */
  shape?: ContextShape
  /** A context with other files than those of the build. */
  files?(dockerfile: string): Promise<{ tar: Readable; dockerfile: string }>
}

export const flush = async (
  scene: BuildScene,
  state: StageState,
  { isNeeded = false, shape, files }: FlushOptions = {},
): Promise<void> => {
  const { plan, engine, made, log, network, deadlineMs } = scene
  const { pending, image } = state
  if (pending.length === 0 && !isNeeded) return flushNotes(scene, state)
  const own = (text: string): PieceLine => ({ text, display: null, line: null })
  const values = pending.flatMap((each) => each.values)
  const lines = [
    own(`FROM ${image === null ? 'scratch' : bareId(image)}`),
    ...(state.isOwn ? [] : [own(`ARG SLIPWAY_CACHE=${scene.cacheSecret}`)]),
    ...values.map(([name]) => own(`ARG ${name}`)),
    ...(await repeated(scene, state)).map(own),
    ...pending,
  ]
  const head = plan.file.sign === '`' ? '# escape=`\n' : ''
  const text = `${head}${lines.map((line) => line.text).join('\n')}\n`
  const needsFiles = pending.some((line) => line.needsFiles)
  const hasSteps = plan.stages.some(({ stage }) => stage.instructions.some(({ kind }) => kind === 'run'))
  // A few lines of COPY can fill a disk too.
  state.image = await scene.watch(async (watched) => {
    const piece = {
      ...(files === undefined ? await scene.context(text, needsFiles, shape) : await files(text)),
      ...{ lines, headLines: head === '' ? 0 : 1, buildArgs: Object.fromEntries(values), deadlineMs },
    }
    return buildPiece(engine, made, piece, log, hasSteps ? network.begin : () => {}, watched)
  })
  state.isOwn = true
  remember(state)
  flushNotes(scene, state)
}
