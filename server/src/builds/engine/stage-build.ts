/**
 * Builds one stage of a Dockerfile, from its base to its image. It is split at each RUN: what is in between goes to the
 * engine as our own Dockerfile, in which the base and every COPY --from are ids; a RUN is our own container. Each piece
 * repeats for the engine what earlier pieces declared and an image does not store.
 */
import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import { isEngineError } from '../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { ImageStore } from '../image-store.ts'
import { argValue, type Origin, type PlannedStage, type StagePlan } from '../preparation/build-plan.ts'
import type { ContextShape } from '../preparation/context-shape.ts'
import type { ArgInstruction, CopyInstruction, Instruction, RunInstruction } from '../preparation/dockerfile.ts'
import { readTriggers, valueIn } from '../preparation/dockerfile.ts'
import type { BuildLeftovers } from './build-containers.ts'
import type { BuildLog } from './build-log.ts'
import type { BuildNetwork } from './build-network.ts'
import { buildPiece, type PieceLine } from './engine-build.ts'
import { envOf, type ImageDetail, stepWords } from './image-config.ts'
import { type StepLimits, withoutTriggers } from './run-step.ts'
import { shapeCopy, withMode } from './stage-copy.ts'
import { prepareStep, runStageStep, stepKey } from './stage-run.ts'
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
  /** Nothing that was built before is used. */
  noCache: boolean
  /** See `ImageStore.cacheSecret`. */
  cacheSecret: string
  limits: StepLimits
  deadlineMs: number
  plan: StagePlan
  /** The ids of the base images by name. */
  bases: ReadonlyMap<string, string>
  /** Ids of the stages that are built, by their index. */
  stages: Map<number, string>
  /** The build's context with a Dockerfile of ours in it; without `needsFiles`, that one alone. */
  context(text: string, needsFiles: boolean, shape?: ContextShape): Promise<{ tar: Readable; dockerfile: string }>
  /** What steps may ask for as a secret, by name. */
  secrets: Readonly<Record<string, string>>
  caches: StepCaches
  /** The volumes of caches that steps have used. */
  usedCaches: Set<string>
  inspect(id: string): Promise<ImageDetail>
  /** Id of an image with busybox. */
  holderImage(signal: AbortSignal): Promise<string>
  /** A volume with busybox, of this build. */
  tools(): Promise<string>
  /** Runs a step, monitored by what may abort it. */
  watch<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T>
}

const shortId = (id: string): string => id.replace('sha256:', '').slice(0, 12)

/** Only as an id: 64 hex digits are never pulled, and are never the name of another image. */
const bareId = (id: string): string => id.replace('sha256:', '')

const inspectImage = (engine: Engine, id: string, signal: AbortSignal): Promise<ImageDetail> =>
  engine.call<ImageDetail>('GET', `/images/${id}/json`, { signal })

/** Null if the engine no longer has it. */
const isHeld = async ({ engine, signal }: BuildScene, id: string | null): Promise<string | null> => {
  if (id === null) return null
  try {
    return (await inspectImage(engine, id, signal)).Id
  } catch (error) {
    if (isEngineError(error, 404)) return null
    throw error
  }
}

/** The result of `make`, which runs once for the same organization, cluster, parent and instructions. */
const once = async (scene: BuildScene, parent: string, what: unknown, make: () => Promise<string>): Promise<string> => {
  const { store, organizationId, clusterId, log } = scene
  const key = createHash('sha256')
    .update(JSON.stringify(['slipway-step-2', organizationId, clusterId, parent, what]))
    .digest('hex')
  const known = scene.noCache ? null : await isHeld(scene, await store.findStep(key))
  if (known !== null) {
    log.write(` ---> Using cache\n ---> ${shortId(known)}\n`)
    return known
  }
  const image = await make()
  await store.saveStep(organizationId, key, image)
  return image
}

interface PendingLine extends PieceLine {
  word: string
  needsFiles: boolean
}

interface StageState {
  /** Null if there is nothing yet. */
  image: string | null
  /** False for an image that other organizations may have too. */
  isOwn: boolean
  /** Values of the ARGs in scope. */
  args: Map<string, string>
  pending: PendingLine[]
  /** The next log line, after the pending ones. */
  notes: string[]
  triggers: PendingLine[]
  /** An earlier piece set the command. */
  hasCommand: boolean
  maintainer: string | null
}

const describeInstruction = ({ plan }: BuildScene, { step, text }: { step: number; text: string }): string =>
  `Step ${step}/${plan.file.steps} : ${text}`

/** Whether the text may refer to a name. */
const mentions = (lines: PendingLine[], name: string): boolean => lines.some(({ text }) => text.includes(name))

const originId = (scene: BuildScene, origin: Origin): string | null => {
  if (origin.from === 'scratch') return null
  const id = origin.from === 'stage' ? scene.stages.get(origin.index) : scene.bases.get(origin.name)
  if (id === undefined) throw new Error('a stage or base image does not exist')
  return id
}

/** What earlier pieces declared that an image does not store. */
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

/** Adds to what goes to the engine; it is logged after earlier entries. */
const push = (state: StageState, line: PendingLine): void => {
  state.pending.push({ ...line, display: `${state.notes.join('')}${line.display}` })
  state.notes = []
}

/** Sends what is pending to the engine. */
const flush = async (scene: BuildScene, state: StageState, isNeeded = false, shape?: ContextShape): Promise<void> => {
  const { plan, engine, made, log, network, deadlineMs } = scene
  const { pending, args, image } = state
  if (pending.length === 0 && !isNeeded) return flushNotes(scene, state)
  const own = (text: string): PieceLine => ({ text, display: null })
  const named = [...args].filter(([name]) => mentions(pending, name))
  const lines = [
    own(`FROM ${image === null ? 'scratch' : bareId(image)}`),
    ...(state.isOwn ? [] : [own(`ARG SLIPWAY_CACHE=${scene.cacheSecret}`)]),
    ...named.map(([name]) => own(`ARG ${name}`)),
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
      ...(await scene.context(text, needsFiles, shape)),
      lines,
      buildArgs: Object.fromEntries(named),
      deadlineMs,
    }
    return buildPiece(engine, made, piece, log, hasSteps ? network.begin : () => {}, watched)
  })
  state.isOwn = true
  remember(state)
  flushNotes(scene, state)
}

/** Its value is needed before anything of it is built: so are the variables it refers to. */
const addArg = async (scene: BuildScene, state: StageState, at: ArgInstruction): Promise<void> => {
  state.notes.push(`${describeInstruction(scene, at)}\n`)
  for (const arg of at.args) {
    const [name, fallback] = arg
    const needsEnv = fallback?.includes('$') === true && state.pending.some(({ word }) => word === 'ENV')
    if (needsEnv || mentions(state.pending, name)) await flush(scene, state)
    const env = await envNow(scene, state)
    const value = argValue(at, arg, scene.plan, (other) => env.get(other) ?? state.args.get(other))
    const found = value ?? scene.plan.globals.get(name)
    if (found === undefined) state.args.delete(name)
    else state.args.set(name, found)
  }
}

const envNow = async ({ engine, signal }: BuildScene, { image }: StageState): Promise<Map<string, string>> =>
  image === null ? new Map() : envOf(await inspectImage(engine, image, signal))

/** The values of variables at this place, once everything before it is built. */
const namesNow = async (scene: BuildScene, state: StageState): Promise<(name: string) => string | undefined> => {
  const env = await envNow(scene, state)
  return (name) => env.get(name) ?? state.args.get(name)
}

const runNow = async (
  scene: BuildScene,
  planned: PlannedStage,
  state: StageState,
  run: RunInstruction,
): Promise<void> => {
  const { log, plan } = scene
  await flush(scene, state, state.image === null)
  const parent = await scene.inspect(state.image!)
  const env = envOf(parent)
  const args = [...state.args].filter(([name]) => !env.has(name)).sort(([a], [b]) => (a < b ? -1 : 1))
  const words = stepWords(run.argv, run.command, parent)
  const lookUp = await namesNow(scene, state)
  log.write(`${describeInstruction(scene, run)}\n`)
  const expand = (text: string): string => valueIn(run, text, plan.file.sign, lookUp)
  const at = { run, parent, words, args }
  const step = await prepareStep(scene, planned, at, expand, (origin) => originId(scene, origin))
  state.image = await once(scene, parent.Id, stepKey(step), () =>
    scene.watch((watched) => runStageStep(scene, step, watched)),
  )
  state.isOwn = true
}

const sourceOf = (scene: BuildScene, { from }: CopyInstruction, origin: Origin | undefined): string | null => {
  const id = origin === undefined ? null : originId(scene, origin)
  if (from !== null && id === null)
    throw new DeploymentError('build_failed', 'The build failed: COPY --from=scratch has nothing to copy.')
  return id
}

const copyLine = (scene: BuildScene, copy: CopyInstruction, id: string | null, rest = copy.rest): PendingLine => {
  const { word, chown, from } = copy
  const flags = [...(id === null ? [] : [`--from=${bareId(id)}`]), ...(chown === null ? [] : [`--chown=${chown}`])]
  return {
    word,
    text: [word, ...flags, rest].join(' '),
    display: describeInstruction(scene, copy),
    needsFiles: from === null,
  }
}

/** What the engine's own COPY cannot do alone is a piece of its own. */
const copyNow = async (
  scene: BuildScene,
  state: StageState,
  copy: CopyInstruction,
  id: string | null,
): Promise<void> => {
  const { sign } = scene.plan.file
  await flush(scene, state)
  const lookUp = await namesNow(scene, state)
  if (id !== null) {
    const changed = await withMode(scene, copy, id, { sign, lookUp }, (what, make) => once(scene, id, what, make))
    return push(state, copyLine(scene, copy, changed))
  }
  const { rest, shape } = shapeCopy(copy, sign, lookUp)
  push(state, copyLine(scene, copy, null, rest))
  await flush(scene, state, false, shape)
}

const addCopy = async (
  scene: BuildScene,
  planned: PlannedStage,
  state: StageState,
  copy: CopyInstruction,
): Promise<void> => {
  const id = sourceOf(scene, copy, planned.copies.get(copy.step))
  if (copy.extras === null) push(state, copyLine(scene, copy, id))
  else await copyNow(scene, state, copy, id)
}

const add = async (scene: BuildScene, planned: PlannedStage, state: StageState, each: Instruction): Promise<void> => {
  if (each.kind === 'arg') return addArg(scene, state, each)
  if (each.kind === 'run') return runNow(scene, planned, state, each)
  if (each.kind === 'copy') return addCopy(scene, planned, state, each)
  const line = {
    word: each.word,
    text: `${each.word} ${each.rest}`,
    display: describeInstruction(scene, each),
    needsFiles: false,
  }
  // A trigger is for builds from this stage's image: pieces of the stage itself do not run it.
  if (each.kind === 'onbuild') state.triggers.push(line)
  else push(state, line)
}

const refusePlatform = ({ platform }: PlannedStage, { Os, Architecture, Variant }: ImageDetail): void => {
  const names = [`${Os}/${Architecture}`, `${Os}/${Architecture}/${Variant ?? ''}`, Os]
  if (platform === null || names.includes(platform)) return
  throw new DeploymentError(
    'build_failed',
    `The build failed: FROM asks for ${platform.slice(0, 60)}, and this engine builds for ${Os}/${Architecture} only.`,
  )
}

const triggersOf = (planned: PlannedStage, { Config }: ImageDetail): Instruction[] => {
  const triggers = Config?.OnBuild ?? []
  try {
    return readTriggers(triggers, planned.stage)
  } catch (error) {
    if (!(error instanceof DeploymentError)) throw error
    const shown = triggers.map((each) => each.slice(0, 80)).join('; ')
    throw new DeploymentError(
      error.code,
      `Base image ${planned.stage.base} has ONBUILD triggers that are not supported here (${shown}): ${error.message}`,
    )
  }
}

/** The stage after its base: triggers of the base run as instructions of the stage. */
const begin = async (scene: BuildScene, planned: PlannedStage, state: StageState): Promise<Instruction[]> => {
  const { engine, made, log, signal } = scene
  log.write(`${describeInstruction(scene, planned.stage)}\n`)
  if (state.image === null) {
    log.write(' ---> \n')
    return []
  }
  const base = await inspectImage(engine, state.image, signal)
  log.write(` ---> ${shortId(base.Id)}\n`)
  refusePlatform(planned, base)
  const triggers = triggersOf(planned, base)
  if (triggers.length > 0) {
    log.write(`# Executing ${triggers.length} build trigger${triggers.length > 1 ? 's' : ''}\n`)
    state.image = await once(scene, base.Id, 'without triggers', () => withoutTriggers(engine, made, base, signal))
    state.isOwn = true
  }
  // The engine sets PATH in every image that it builds.
  if (!envOf(base).has('PATH')) await flush(scene, state, true)
  return triggers
}

/** Builds the stage; returns the id of its image. */
export const buildStage = async (scene: BuildScene, planned: PlannedStage): Promise<string> => {
  const { base, stage } = planned
  const state: StageState = {
    image: originId(scene, base),
    isOwn: false,
    args: new Map(),
    pending: [],
    notes: [],
    triggers: [],
    hasCommand: false,
    maintainer: null,
  }
  for (const each of await begin(scene, planned, state)) await add(scene, planned, state, each)
  for (const each of stage.instructions) await add(scene, planned, state, each)
  state.pending.push(...state.triggers)
  await flush(scene, state, state.image === null)
  return state.image!
}
