/**
 * Builds one stage of a Dockerfile, from its base to its image. It is split at each RUN: what is in between goes to the
 * engine as our own Dockerfile (stage-pieces.ts); a RUN is our own container. Variables get their values here, so that the
 * engine's age does not matter.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { DeploymentError } from '../../lib/errors.ts'
import { argValue, type PlannedStage } from '../preparation/build-plan.ts'
import type { ArgInstruction, Instruction, RunInstruction, SettingInstruction } from '../preparation/dockerfile.ts'
import { readTriggers, valueIn } from '../preparation/dockerfile.ts'
import { createEngineText } from './engine-text.ts'
import { envOf, type ImageDetail, stepWords } from './image-config.ts'
import { withoutTriggers } from './run-step.ts'
import { addCopy } from './stage-copy.ts'
import {
  type BuildScene,
  describeInstruction,
  flush,
  inspectImage,
  namesIn,
  once,
  originId,
  push,
  type StageState,
  shortId,
} from './stage-pieces.ts'
import { prepareStep, runStageStep, stepKey } from './stage-run.ts'
import { settingLine } from './stage-settings.ts'

/** What the engine puts into every image without one. */
const usualPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

const addArg = (scene: BuildScene, state: StageState, at: ArgInstruction): void => {
  state.notes.push(`${describeInstruction(scene, at)}\n`)
  for (const arg of at.args) {
    const [name] = arg
    const found = argValue(at, arg, scene.plan, namesIn(state)) ?? scene.plan.globals.get(name)
    if (found === undefined) state.args.delete(name)
    else state.args.set(name, found)
  }
}

const addSetting = (scene: BuildScene, state: StageState, each: SettingInstruction): void => {
  const { sign } = scene.plan.file
  const text = createEngineText(sign, () => `SLIPWAY_VALUE_${state.names++}`)
  const place = { sign, lookUp: namesIn(state), text, knowsStartInterval: scene.knowsStartInterval }
  const line = settingLine(each, place)
  for (const [name, value] of line.env) state.env.set(name, value)
  const { word } = each
  const display = describeInstruction(scene, each)
  if (line.text === null) state.notes.push(`${display}\n`)
  else push(state, { word, text: line.text, display, line: each.line, needsFiles: false, values: text.values })
  if (line.note !== null) state.notes.push(line.note)
}

const runNow = async (
  scene: BuildScene,
  planned: PlannedStage,
  state: StageState,
  run: RunInstruction,
): Promise<void> => {
  const { log, plan } = scene
  await flush(scene, state, { isNeeded: state.image === null })
  const parent = await scene.inspect(state.image!)
  const env = envOf(parent)
  const args = [...state.args].filter(([name]) => !env.has(name)).sort(([a], [b]) => (a < b ? -1 : 1))
  const words = stepWords(run.argv, run.command, parent)
  const lookUp = namesIn(state)
  log.write(`${describeInstruction(scene, run)}\n`)
  const expand = (text: string): string => valueIn(run, text, plan.file.sign, lookUp)
  const at = { run, parent, words, args }
  const step = await prepareStep(scene, planned, at, expand, (origin) => originId(scene, origin))
  state.image = await once(scene, parent.Id, stepKey(step), () =>
    scene.watch((watched) => runStageStep(scene, step, watched)),
  )
  state.isOwn = true
}

const addNow = async (
  scene: BuildScene,
  planned: PlannedStage,
  state: StageState,
  each: Instruction,
): Promise<void> => {
  if (each.kind === 'arg') return addArg(scene, state, each)
  if (each.kind === 'run') return runNow(scene, planned, state, each)
  if (each.kind === 'copy') return addCopy(scene, planned, state, each)
  if (each.kind === 'setting') return addSetting(scene, state, each)
  // A trigger is for builds from this stage's image: pieces of the stage itself do not run it.
  const { word, line } = each
  const display = describeInstruction(scene, each)
  state.triggers.push({ word, text: `${word} ${each.rest}`, display, line, needsFiles: false, values: [] })
}

const add = async (scene: BuildScene, planned: PlannedStage, state: StageState, each: Instruction): Promise<void> => {
  // Values of a whole Dockerfile can take long: others have their turn.
  await nextTurn()
  try {
    await addNow(scene, planned, state, each)
  } catch (error) {
    if (!(error instanceof DeploymentError)) throw error
    // It may contain the value of a variable that is a secret.
    const { code, message, next, lines } = error
    const scrubbed = scene.log.scrub(message)
    throw scrubbed === message ? error : new DeploymentError(code, scrubbed, { next, lines })
  }
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
    state.env.set('PATH', usualPath)
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
  if (!envOf(base).has('PATH')) await flush(scene, state, { isNeeded: true })
  state.env = new Map([['PATH', usualPath], ...envOf(base)])
  return triggers
}

/** Builds the stage; returns the id of its image. */
export const buildStage = async (scene: BuildScene, planned: PlannedStage): Promise<string> => {
  const { base, stage } = planned
  const state: StageState = {
    image: originId(scene, base),
    isOwn: false,
    args: new Map(),
    env: new Map(),
    names: 0,
    pending: [],
    notes: [],
    triggers: [],
    hasCommand: false,
    maintainer: null,
  }
  for (const each of await begin(scene, planned, state)) await add(scene, planned, state, each)
  for (const each of stage.instructions) await add(scene, planned, state, each)
  state.pending = state.pending.concat(state.triggers)
  await flush(scene, state, { isNeeded: state.image === null })
  return state.image!
}
