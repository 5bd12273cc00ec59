/** What two versions of a service differ in, in the words of the API. Pure. Values of variables never come out of here. */
import { mainTask, type Source, type Tasks, type WorkloadSpec } from './deployments.ts'
import type { EffectiveVariables, FrozenWorkload } from './workload.ts'

export interface Move {
  from: string | null
  to: string | null
}

export interface Changes {
  image: Move | null
  commit: Move | null
  /** `field` is a JSON pointer. */
  configuration: { field: string; from: unknown; to: unknown }[]
  /** By their keys. */
  variables: { added: string[]; changed: string[]; removed: string[] }
}

export type Setup = WorkloadSpec & { tasks?: Tasks; from?: Source }

/** Names that the API gives to what a workload is made of, where they are not simply the same. */
const words: Record<string, string> = {
  cpuMillicores: 'cpu',
  memoryMb: 'memory',
  instances: 'min_running_instances',
  volumes: 'storage',
  mountPath: 'mount_point',
  sizeGb: 'size',
  tasks: 'schedule',
  START: 'on_start',
  STOP: 'on_stop',
  DELETE: 'on_delete',
  CRON: 'cronjob',
  cron: 'cronjob',
  expression: 'scheduled_at',
  timeZone: 'timezone',
  maxRestarts: 'max_nb_restart',
  git: 'git_repository',
  gitTokenId: 'git_token_id',
  targetStage: 'docker_target_build_stage',
  name: 'image_name',
}

/** Fields that stand deeper in the API than in a workload. */
const deeper: Record<string, readonly string[]> = {
  readiness: ['healthchecks', 'readiness_probe'],
  liveness: ['healthchecks', 'liveness_probe'],
  rootPath: ['git_repository', 'root_path'],
  on: [],
  [mainTask]: [],
}

const snake = (name: string): string => name.replaceAll(/(?<=[a-z])[A-Z]/g, (letter) => `_${letter}`).toLowerCase()
const wordsFor = (name: string): readonly string[] => deeper[name] ?? [words[name] ?? snake(name)]

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const isSame = (a: unknown, b: unknown): boolean => JSON.stringify(a ?? null) === JSON.stringify(b ?? null)

const inWords = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(inWords)
  if (!isRecord(value)) return value ?? null
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [wordsFor(name).join('/'), inWords(inner)]))
}

const escaped = (word: string): string => word.replaceAll('~', '~0').replaceAll('/', '~1')

/** The smallest parts that differ. */
const differences = (from: unknown, to: unknown, path: readonly string[]): Changes['configuration'] => {
  if (isSame(from, to)) return []
  if (isRecord(from) && isRecord(to))
    return [...new Set([...Object.keys(from), ...Object.keys(to)])].flatMap((name) =>
      differences(from[name], to[name], [...path, ...wordsFor(name)]),
    )
  if (Array.isArray(from) && Array.isArray(to) && from.length === to.length && from.some(isRecord))
    return from.flatMap((item, at) => differences(item, to[at], [...path, String(at)]))
  return [{ field: path.map((word) => `/${escaped(word)}`).join(''), from: inWords(from), to: inWords(to) }]
}

/** A source's fields stand at the top of a configuration; which of the two it is shows in them. */
// How long readiness may take is said by its probe.
const flat = ({ from, readyTimeoutMs: _, ...rest }: Setup, withSource: boolean): Record<string, unknown> => {
  if (from === undefined || !withSource) return { ...rest }
  const { from: __, ...source } = from
  return { ...rest, ...source }
}

/** What a configuration's two states differ in; the source only where both tell it. */
export const configurationChanges = (from: Setup, to: Setup): Changes['configuration'] => {
  const both = from.from !== undefined && to.from !== undefined
  // Kept as JSON, where nothing and undefined are one.
  const plain = (setup: Setup): unknown => JSON.parse(JSON.stringify(flat(setup, both)))
  return differences(plain(from), plain(to), []).sort((a, b) => (a.field < b.field ? -1 : 1))
}

/** The configuration that a release keeps, without what is its own. */
export const setupOf = (frozen: FrozenWorkload): Setup => {
  const {
    organizationId: _o,
    projectId: _p,
    environmentId: _e,
    serviceId: _s,
    revision: _r,
    aliases: _a,
    ...setup
  } = frozen
  return setup
}

type Environment = Pick<EffectiveVariables, 'env' | 'files'>

/** A variable that is mounted has its path in the environment, and its value in the file. */
const valuesOf = ({ env, files }: Environment): Map<string, string> => {
  const contents = new Map(files.map(({ path, content }) => [path, content]))
  return new Map(Object.entries(env).map(([key, value]) => [key, `${value}\0${contents.get(value) ?? ''}`]))
}

export const variableChanges = (from: Environment, to: Environment): Changes['variables'] => {
  const [before, after] = [valuesOf(from), valuesOf(to)]
  const keys = [...after.keys()].sort()
  return {
    added: keys.filter((key) => !before.has(key)),
    changed: keys.filter((key) => before.has(key) && before.get(key) !== after.get(key)),
    removed: [...before.keys()].filter((key) => !after.has(key)).sort(),
  }
}
