/**
 * Builds one stage of a Dockerfile, from its base to its image. It is split at each RUN: the parts in between go to
 * the engine as our own Dockerfile (stage-pieces.ts); a RUN is our own container. Variables get their values here, so
 * that the engine's age does not matter.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { DeploymentError } from '../../lib/errors.ts'
import { argValue, type PlannedStage } from '../preparation/build-plan.ts'
import {
  type ArgInstruction,
  type Instruction,
  type RunInstruction,
  readTriggers,
  type SettingInstruction,
  valueIn,
} from '../preparation/dockerfile.ts'
import { type Escape, unreadable } from '../preparation/dockerfile-lines.ts'
import type { Setting } from '../preparation/image-settings.ts'
import { createEngineText, type EngineText } from './engine-text.ts'
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

interface SettingPlace {
  sign: Escape
  lookUp(name: string): string | undefined
  text: EngineText
  knowsStartInterval: boolean
}

interface SettingLine {
  /** Null if the engine has nothing to do. */
  text: string | null
  env: [name: string, value: string][]
  /** For the log: the part of the instruction that has no effect. */
  note: string | null
}

const pairsLine = (each: SettingInstruction, pairs: [string, string][], place: SettingPlace): SettingLine => {
  const { sign, lookUp, text } = place
  const found = pairs.map((pair): [string, string] => {
    const [name, value] = [valueIn(each, pair[0], sign, lookUp), valueIn(each, pair[1], sign, lookUp)]
    if (name === '') throw unreadable(each.line, `${each.word} has an empty name.`)
    if (name.includes('=')) throw unreadable(each.line, `${each.word} cannot have = in a name.`)
    return [name, value]
  })
  const words = found.map(([name, value]) => `${text.quoted(name)}=${text.quoted(value)}`)
  return { text: `${each.word} ${words.join(' ')}`, env: each.word === 'ENV' ? found : [], note: null }
}

const portWord = /^[A-Za-z0-9.:/[\]-]{1,100}$/

const wordsLine = (each: SettingInstruction, words: string[], place: SettingPlace): string | null => {
  const { sign, lookUp, text } = place
  const values = words.map((word) => valueIn(each, word, sign, lookUp))
  if (each.word === 'VOLUME') {
    if (values.includes('')) throw unreadable(each.line, 'VOLUME has an empty path.')
    return `VOLUME ${text.list(values)}`
  }
  // A variable may hold several ports.
  const ports = values.flatMap((value) => value.split(/\s+/)).filter((value) => value !== '')
  const wrong = ports.find((port) => !portWord.test(port))
  if (wrong !== undefined)
    throw unreadable(
      each.line,
      `EXPOSE has ${JSON.stringify(wrong.slice(0, 40))}: a port must be like 80, 53/udp or 8000-8010.`,
    )
  return ports.length === 0 ? null : `EXPOSE ${ports.join(' ')}`
}

const healthLine = (setting: Extract<Setting, { type: 'healthcheck' }>, knowsStartInterval: boolean): SettingLine => {
  const { options, startInterval, test } = setting
  const passed = startInterval !== null && knowsStartInterval
  const all = [...options, ...(passed ? [['start-interval', startInterval]] : [])]
  const note =
    startInterval === null || passed
      ? null
      : `HEALTHCHECK --start-interval=${startInterval} has no effect: this Docker engine is older than version 25. The other options act.\n`
  return { text: ['HEALTHCHECK', ...all.map(([name, value]) => `--${name}=${value}`), test].join(' '), env: [], note }
}

/** Lines for the engine from ENV, LABEL, HEALTHCHECK and the like, once their variables have values. Pure. */
const settingLine = (each: SettingInstruction, place: SettingPlace): SettingLine => {
  const { word, rest, setting } = each
  const plain = (text: string): SettingLine => ({ text, env: [], note: null })
  if (setting.type === 'pairs') return pairsLine(each, setting.pairs, place)
  if (setting.type === 'healthcheck') return healthLine(setting, place.knowsStartInterval)
  if (setting.type === 'words') {
    const text = wordsLine(each, setting.words, place)
    return { text, env: [], note: text === null ? 'EXPOSE has no effect: its variables are empty.\n' : null }
  }
  if (setting.type === 'text') return plain(`${word} ${rest}`)
  const value = valueIn(each, setting.value, place.sign, place.lookUp)
  // Without a user, the image's programs run as root.
  if (value === '' && word !== 'USER')
    throw unreadable(each.line, `${word} is empty once its variables have their values.`)
  return plain(`${word} ${place.text.quoted(value)}`)
}

/** The PATH that the engine sets in every image without one. */
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
  // Expanding values of a whole Dockerfile can take long: other work gets a turn.
  await nextTurn()
  try {
    await addNow(scene, planned, state, each)
  } catch (error) {
    if (!(error instanceof DeploymentError)) throw error
    // It may contain the value of a secret variable.
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
