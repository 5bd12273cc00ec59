/**
 * Resolves a service's environment from everything set in the places it can see. Pure and total: it never throws,
 * whatever the rows contain, and the same rows in any order give the same result.
 */

/** From the widest to the narrowest: BUILT_IN, PROJECT, ENVIRONMENT, then the service's own (APPLICATION …). */
type VariableScope = string

/** The fields that decide which row is in effect, and where its value comes from. */
interface TraceableVariable {
  id: string
  key: string
  scope: VariableScope
  /** VALUE, FILE, ALIAS, OVERRIDE, BUILT_IN, EXTERNAL_SECRET, FILE_EXTERNAL_SECRET. */
  variableType: string
  /** For an alias or override. */
  targetId: string | null
}

/** A key whose value is in a secret manager: its name there, and the access that reads it. */
export interface ExternalReference {
  key: string
  /** The row that refers to it; aliases have the same. */
  variableId: string
  accessId: string
  reference: string
}

/** One row that the service can see. `value` is plain text, a secret's too: keep the whole inside a `Secret`. */
export interface VisibleVariable extends TraceableVariable {
  /** Null for an alias, which has the value of its target. */
  value: string | null
  isSecret: boolean
  /** For an external secret: its value is a reference. */
  accessId?: string | null
  /** Not null: the value is the content of a file at this path. */
  mountPath: string | null
  interpolateInFile: boolean
}

export interface ResolvedVariables {
  env: Record<string, string>
  files: { path: string; content: string }[]
  /** Texts to scrub from logs: each secret as written and as interpolated. */
  secretValues: string[]
  /** Where each key of `env` comes from. */
  origins: Record<string, { scope: VariableScope; variableId: string }>
  /** Keys that have a reference for a value. */
  external: ExternalReference[]
}

/** The value of a key once scopes and aliases are resolved. */
interface Effective {
  key: string
  row: VisibleVariable
  text: string
  mountPath: string | null
  interpolateInFile: boolean
  isSecret: boolean
  external: ExternalReference | null
}

const ranks: Record<string, number> = { BUILT_IN: 0, PROJECT: 1, ENVIRONMENT: 2 }
const rank = ({ scope }: TraceableVariable): number => (Object.hasOwn(ranks, scope) ? ranks[scope]! : 3)

/** Narrower first; equal scopes by id, so that the order of rows never matters. */
const byNarrowness = (a: TraceableVariable, b: TraceableVariable): number => rank(b) - rank(a) || (a.id < b.id ? -1 : 1)

const pickNarrowest = <T extends TraceableVariable>(rows: readonly T[]): Map<string, T> => {
  const winners = new Map<string, T>()
  for (const row of rows) {
    const best = winners.get(row.key)
    if (best === undefined || byNarrowness(row, best) < 0) winners.set(row.key, row)
  }
  return winners
}

interface View<T> {
  byId: ReadonlyMap<string, T>
  winners: ReadonlyMap<string, T>
}

const viewOf = <T extends TraceableVariable>(rows: readonly T[]): View<T> => ({
  byId: new Map(rows.map((row) => [row.id, row])),
  winners: pickNarrowest(rows),
})

/** The row whose value this one has: an alias follows the row in effect for its target's key. Undefined: dangling. */
const follow = <T extends TraceableVariable>(start: T, view: View<T>): T | undefined => {
  if (start.variableType !== 'ALIAS') return start
  let row: T | undefined = start
  const seen = new Set<string>()
  while (row !== undefined && row.variableType === 'ALIAS') {
    if (seen.has(row.id)) return undefined
    seen.add(row.id)
    const target: T | undefined = view.byId.get(row.targetId ?? '')
    const winner: T | undefined = target && view.winners.get(target.key)
    row = winner === undefined || seen.has(winner.id) ? target : winner
  }
  return row
}

/** For each row: whether it is in effect for its key here, and the row that has its value. */
export const traceVariables = <T extends TraceableVariable>(rows: readonly T[]) => {
  const view = viewOf(rows)
  return rows.map((row) => ({ row, isEffective: view.winners.get(row.key) === row, source: follow(row, view) ?? row }))
}

/** An override of a file is the same file with other content. */
const inherited = <T>(
  row: VisibleVariable,
  view: View<VisibleVariable>,
  read: (row: VisibleVariable) => T | null | false,
): T | null => {
  const seen = new Set<string>()
  let at: VisibleVariable | undefined = row
  while (at !== undefined && !seen.has(at.id)) {
    const found = read(at)
    if (found !== null && found !== false) return found
    seen.add(at.id)
    at = view.byId.get(at.targetId ?? '')
  }
  return null
}

const settle = (row: VisibleVariable, view: View<VisibleVariable>): Effective | undefined => {
  const source = follow(row, view)
  if (source === undefined) return undefined
  const text = source.value ?? ''
  const { id: variableId, accessId } = source
  const isExternal = source.variableType.endsWith('EXTERNAL_SECRET')
  return {
    key: row.key,
    row,
    text,
    mountPath: inherited(source, view, ({ mountPath }) => mountPath),
    interpolateInFile: inherited(source, view, ({ interpolateInFile }) => interpolateInFile) ?? false,
    isSecret: row.isSecret || source.isSecret || isExternal,
    external: isExternal ? { key: row.key, variableId, accessId: accessId ?? '', reference: text } : null,
  }
}

const reference = /\{\{\s*([-._A-Za-z][-._A-Za-z0-9]*)\s*\}\}/g

// The kernel accepts about 2 MiB of environment; beyond that, references stay as written instead of filling memory.
const growthLimit = 4 << 20

/** Replaces references by `values`; one without a value stays as written. `left` is the remaining character budget. */
const interpolate = (text: string, values: ReadonlyMap<string, string>, left: { characters: number }): string =>
  text.replace(reference, (written, key: string) => {
    const value = values.get(key)
    if (value === undefined || value.length > left.characters) return written
    left.characters -= value.length
    return value
  })

const referencesOf = (text: string, own: string): string[] => {
  const keys = Array.from(text.matchAll(reference), (match) => match[1]!)
  return [...new Set(keys)].filter((key) => key !== own)
}

/** The text that goes into the environment before interpolation: a file's variable holds its path. */
const envText = ({ mountPath, text }: Effective): string => mountPath ?? text

/**
 * Resolves values in an order in which every reference is resolved before it is used. A cyclic reference never
 * resolves: it stays as written, and so does a reference to it.
 */
const interpolateAll = (all: readonly Effective[], left: { characters: number }): Map<string, string> => {
  const values = new Map<string, string>()
  const known = new Map(all.map((one) => [one.key, one]))
  const waiting = new Map<string, number>()
  const users = new Map<string, string[]>()
  const ready: string[] = []
  for (const one of all) {
    const needs = one.mountPath === null ? referencesOf(one.text, one.key).filter((key) => known.has(key)) : []
    waiting.set(one.key, needs.length)
    if (needs.length === 0) ready.push(one.key)
    for (const need of needs) users.set(need, [...(users.get(need) ?? []), one.key])
  }
  for (const key of ready) {
    const one = known.get(key)!
    values.set(key, one.mountPath === null ? interpolate(one.text, values, left) : one.mountPath)
    for (const user of users.get(key) ?? []) {
      const count = waiting.get(user)! - 1
      waiting.set(user, count)
      if (count === 0) ready.push(user)
    }
  }
  const unsettled = all.filter(({ key }) => !values.has(key))
  const rest = unsettled.map((one) => [one.key, interpolate(envText(one), values, left)] as const)
  return new Map([...values, ...rest])
}

const collectFiles = (all: readonly Effective[], values: ReadonlyMap<string, string>, left: { characters: number }) => {
  const files = new Map<string, string>()
  const own = all.filter(({ row, mountPath }) => mountPath !== null && row.variableType !== 'ALIAS')
  for (const one of own.sort((a, b) => rank(b.row) - rank(a.row) || (a.key < b.key ? -1 : 1))) {
    if (files.has(one.mountPath!)) continue
    files.set(one.mountPath!, one.interpolateInFile ? interpolate(one.text, values, left) : one.text)
  }
  return [...files].sort(([a], [b]) => (a < b ? -1 : 1)).map(([path, content]) => ({ path, content }))
}

const collectSecrets = (
  all: readonly Effective[],
  values: ReadonlyMap<string, string>,
  files: { path: string; content: string }[],
) => {
  const contents = new Map(files.map(({ path, content }) => [path, content]))
  const texts = all
    .filter(({ isSecret }) => isSecret)
    .flatMap((one) => [one.text, one.mountPath === null ? values.get(one.key)! : (contents.get(one.mountPath) ?? '')])
  return [...new Set(texts)].filter((text) => text !== '').sort()
}

/** Resolves scopes, aliases, overrides, files and interpolation, in this order. */
export const resolveVariables = (rows: readonly VisibleVariable[]): ResolvedVariables => {
  const view = viewOf(rows)
  const all = [...view.winners.values()]
    .map((row) => settle(row, view))
    .filter((one) => one !== undefined)
    .sort((a, b) => (a.key < b.key ? -1 : 1))
  const left = { characters: growthLimit }
  const values = interpolateAll(all, left)
  const files = collectFiles(all, values, left)
  return {
    env: Object.fromEntries(all.map(({ key }) => [key, values.get(key)!])),
    files,
    secretValues: collectSecrets(all, values, files),
    origins: Object.fromEntries(all.map(({ key, row }) => [key, { scope: row.scope, variableId: row.id }])),
    external: all.flatMap(({ external }) => external ?? []),
  }
}
