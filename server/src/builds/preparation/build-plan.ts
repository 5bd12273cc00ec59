/** Which stages a build needs, and what each starts and copies from. Pure. */
import { DeploymentError } from '../../lib/errors.ts'
import type { ArgInstruction, CopyInstruction, Dockerfile, Stage } from './dockerfile.ts'
import { valueIn } from './dockerfile.ts'
import { unreadable } from './dockerfile-lines.ts'

/** Where files come from: nothing, an earlier stage, or an image by its name. */
export type Origin = { from: 'scratch' } | { from: 'stage'; index: number } | { from: 'image'; name: string }

export interface PlannedStage {
  index: number
  stage: Stage
  base: Origin
  /** Of each COPY --from, by its step. */
  copies: Map<number, Origin>
  platform: string | null
}

export interface StagePlan {
  file: Dockerfile
  buildArgs: Record<string, string>
  /** Values of the ARG instructions in front of the first FROM. */
  globals: Map<string, string>
  /** Those that are needed, in their order; the last one is wanted. */
  stages: PlannedStage[]
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

const globalValues = (file: Dockerfile, buildArgs: Record<string, string>): Map<string, string> => {
  const values = new Map<string, string>()
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

const copyOrigin = (copy: CopyInstruction, index: number, names: Map<string, number>): Origin => {
  const from = copy.from!
  const named = names.get(from.toLowerCase())
  if (named !== undefined) return { from: 'stage', index: named }
  if (!/^\d{1,4}$/.test(from)) return { from: 'image', name: from }
  if (Number(from) >= index) throw unreadable(copy.line, 'COPY --from refers to a stage that does not come before it.')
  return { from: 'stage', index: Number(from) }
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
  if (base === '') throw unreadable(stage.line, 'the name of the base image is empty.')
  const copies = new Map<number, Origin>()
  for (const each of stage.instructions)
    if (each.kind === 'copy' && each.from !== null) copies.set(each.step, copyOrigin(each, index, names))
  const origin: Origin =
    named !== undefined
      ? { from: 'stage', index: named }
      : base === 'scratch'
        ? { from: 'scratch' }
        : { from: 'image', name: base }
  return { index, stage, base: origin, copies, platform: stage.platform === null ? null : value(stage.platform) }
}

export const planStages = (file: Dockerfile, buildArgs: Record<string, string>, target: string | null): StagePlan => {
  const globals = globalValues(file, buildArgs)
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
    const { base, copies } = all[index]!
    for (const origin of [base, ...copies.values()]) if (origin.from === 'stage') needed.add(origin.index)
  }
  return { file, buildArgs, globals, stages: all.filter(({ index }) => needed.has(index)) }
}

/** Names of the images that the stages start or copy from, each once. */
export const baseNames = ({ stages }: StagePlan): string[] => {
  const origins = stages.flatMap(({ base, copies }) => [base, ...copies.values()])
  return [...new Set(origins.flatMap((each) => (each.from === 'image' ? [each.name] : [])))]
}
