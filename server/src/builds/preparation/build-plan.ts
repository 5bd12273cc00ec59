/** The stages that a build needs, and the images that each starts and copies from. Pure. */
import { DeploymentError } from '../../lib/errors.ts'
import type { ArgInstruction, Dockerfile, Instruction, Stage } from './dockerfile.ts'
import { valueIn } from './dockerfile.ts'
import { unreadable } from './dockerfile-lines.ts'
import { secretId } from './run-mounts.ts'

/** The origin of files: nothing, an earlier stage, or an image by name. */
export type Origin = { from: 'scratch' } | { from: 'stage'; index: number } | { from: 'image'; name: string }

export interface PlannedStage {
  index: number
  stage: Stage
  base: Origin
  /** Origins of each COPY --from, by its step. */
  copies: Map<number, Origin>
  /** Origins of each bind mount with `from`, by the step of its RUN and its place there (`mountKey`). */
  mounts: Map<string, Origin>
  platform: string | null
}

export interface StagePlan {
  file: Dockerfile
  buildArgs: Record<string, string>
  /** Values of the ARG instructions before the first FROM, and BuildKit's arguments about platforms. */
  globals: Map<string, string>
  /** The needed ones, in their order; the last one is the target. */
  stages: PlannedStage[]
}

/** The engine's platform: nothing else is built. */
export interface Platform {
  os: string
  architecture: string
  variant: string
}

export const usualPlatform: Platform = Object.freeze({ os: 'linux', architecture: 'amd64', variant: '' })

export const mountKey = (step: number, index: number): string => `${step}.${index}`

/** The arguments that BuildKit declares by itself: here, the platforms of build and target are the same. */
const platformArgs = ({ os, architecture, variant }: Platform): [string, string][] => {
  const name = [os, architecture, ...(variant === '' ? [] : [variant])].join('/')
  return ['TARGET', 'BUILD'].flatMap((side): [string, string][] => [
    [`${side}PLATFORM`, name],
    [`${side}OS`, os],
    [`${side}ARCH`, architecture],
    [`${side}VARIANT`, variant],
  ])
}

const given = (buildArgs: Record<string, string>, name: string): string | undefined =>
  Object.hasOwn(buildArgs, name) ? buildArgs[name] : undefined

/** Value of an ARG at its place; undefined where it has none. */
export const argValue = (
  at: ArgInstruction,
  [name, fallback]: ArgInstruction['args'][number],
  { file, buildArgs }: Pick<StagePlan, 'file' | 'buildArgs'>,
  lookUp: (name: string) => string | undefined,
): string | undefined =>
  given(buildArgs, name) ?? (fallback === null ? undefined : valueIn(at, fallback, file.sign, lookUp))

const globalValues = (file: Dockerfile, buildArgs: Record<string, string>, platform: Platform): Map<string, string> => {
  const values = new Map<string, string>(platformArgs(platform))
  for (const each of file.globals)
    for (const arg of each.args) {
      const value = argValue(each, arg, { file, buildArgs }, (name) => values.get(name))
      if (value !== undefined) values.set(arg[0], value)
    }
  return values
}

const targetOf = ({ stages }: Dockerfile, target: string | null): number => {
  if (target === null) return stages.length - 1
  const named = stages.findIndex(({ name }) => name === target.toLowerCase())
  const index = named === -1 && /^\d{1,4}$/.test(target) ? Number(target) : named
  if (stages[index] !== undefined) return index
  throw new DeploymentError('build_failed', 'The build failed: the Dockerfile has no stage with the requested name.')
}

const originOf = (from: string, line: number, index: number, names: Map<string, number>): Origin => {
  const named = names.get(from.toLowerCase())
  if (named !== undefined) return { from: 'stage', index: named }
  if (!/^\d{1,4}$/.test(from)) return { from: 'image', name: from }
  if (Number(from) >= index) throw unreadable(line, `from=${from} refers to a stage that does not come before it.`)
  return { from: 'stage', index: Number(from) }
}

/** The origins that an instruction reads from, by keys of `PlannedStage`. */
const findOrigins = (each: Instruction, find: (from: string) => Origin, planned: PlannedStage): void => {
  if (each.kind === 'copy' && each.from !== null) planned.copies.set(each.step, find(each.from))
  if (each.kind !== 'run') return
  for (const [index, { from }] of each.mounts.entries())
    if (from !== null) planned.mounts.set(mountKey(each.step, index), find(from))
}

const planStage = (
  file: Dockerfile,
  index: number,
  names: Map<string, number>,
  globals: Map<string, string>,
): PlannedStage => {
  const stage = file.stages[index]!
  const value = (word: string): string => valueIn(stage, word, file.sign, (name) => globals.get(name))
  const base = value(stage.base)
  const named = names.get(base.toLowerCase())
  if (base === '') {
    const names = [...stage.base.matchAll(/\$\{?([A-Za-z_][A-Za-z0-9_]*)/g)].map(([, name]) => name)
    const hint =
      names.length === 0 ? '' : ` Give ${names.join(' or ')} a value: a default, or a variable of the service.`
    throw unreadable(stage.line, `the name of the base image is empty.${hint}`)
  }
  const origin: Origin =
    named !== undefined
      ? { from: 'stage', index: named }
      : base === 'scratch'
        ? { from: 'scratch' }
        : { from: 'image', name: base }
  const platform = stage.platform === null ? null : value(stage.platform)
  const planned: PlannedStage = { index, stage, base: origin, copies: new Map(), mounts: new Map(), platform }
  for (const each of stage.instructions) findOrigins(each, (from) => originOf(from, each.line, index, names), planned)
  return planned
}

const originsOf = ({ base, copies, mounts }: PlannedStage): Origin[] => [base, ...copies.values(), ...mounts.values()]

export const planStages = (
  file: Dockerfile,
  buildArgs: Record<string, string>,
  target: string | null,
  platform: Platform,
): StagePlan => {
  const globals = globalValues(file, buildArgs, platform)
  const last = targetOf(file, target)
  const names = new Map<string, number>()
  const all: PlannedStage[] = []
  for (let index = 0; index <= last; index += 1) {
    all.push(planStage(file, index, names, globals))
    const { name } = file.stages[index]!
    if (name !== null) names.set(name, index)
  }
  const needed = new Set([last])
  for (let index = last; index >= 0; index -= 1) {
    if (!needed.has(index)) continue
    for (const origin of originsOf(all[index]!)) if (origin.from === 'stage') needed.add(origin.index)
  }
  return { file, buildArgs, globals, stages: all.filter(({ index }) => needed.has(index)) }
}

export const baseNames = ({ stages }: StagePlan): string[] => {
  return [...new Set(stages.flatMap(originsOf).flatMap((each) => (each.from === 'image' ? [each.name] : [])))]
}

export const secretIds = ({ stages }: StagePlan): string[] => {
  const mounts = stages.flatMap(({ stage }) =>
    stage.instructions.flatMap((each) => (each.kind === 'run' ? each.mounts : [])),
  )
  return [...new Set(mounts.filter(({ type }) => type === 'secret').map(secretId))]
}
