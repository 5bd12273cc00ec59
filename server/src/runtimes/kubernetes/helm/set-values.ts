/**
 * Single values by their path, as `helm --set`, `--set-string` and `--set-json` accept them, as one tree. They are not
 * passed to helm as arguments, because every user of a machine can read those, and variables may be secret. Pure.
 */

import { DeploymentError } from '../../../lib/errors.ts'
import { readJson } from '../../../lib/foreign-text/read-json.ts'

export type Pair = readonly [path: string, value: string]

interface SetValues {
  set: readonly Pair[]
  setString: readonly Pair[]
  setJson: readonly Pair[]
}

type Tree = { [name: string]: unknown } | unknown[]

const highestIndex = 1000
const deepest = 30

const refuse = (path: string, message: string): never => {
  throw new DeploymentError('values_refused', `The value ${JSON.stringify(path.slice(0, 200))} ${message}.`)
}

/** `a.b\.c[0]` is a, `b.c`, 0. */
const partsOf = (path: string): (string | number)[] => {
  const parts: (string | number)[] = []
  for (const piece of path.match(/(?:\\.|[^.\\])+/g) ?? []) {
    const [, name = '', indexes = ''] =
      /^((?:\\.|[^[\\])*)((?:\[\d+\])*)$/.exec(piece) ?? refuse(path, 'has a path that is not one')
    if (name !== '') parts.push(name.replace(/\\(.)/g, '$1'))
    for (const [, index] of indexes.matchAll(/\[(\d+)\]/g)) parts.push(Number(index))
  }
  if (typeof parts[0] !== 'string' || parts.length > deepest) return refuse(path, 'has a path that is not one')
  if (parts.includes('__proto__')) return refuse(path, 'has a path that is not one')
  if (parts.some((part) => typeof part === 'number' && part > highestIndex))
    return refuse(path, `has an index above ${highestIndex}`)
  return parts
}

/** As helm reads it without quotes. */
const typed = (text: string): unknown => {
  if (text === 'null') return null
  if (text === 'true' || text === 'false') return text === 'true'
  return /^(0|-?[1-9]\d{0,15})$/.test(text) ? Number(text) : text
}

const listOf = (text: string): string[] | null =>
  text.startsWith('{') && text.endsWith('}')
    ? text
        .slice(1, -1)
        .split(/(?<!\\),/)
        .filter(Boolean)
    : null

const unescaped = (text: string): string => text.replace(/\\(.)/g, '$1')

const readValue = (text: string, read: (text: string) => unknown): unknown =>
  listOf(text)?.map((each) => read(unescaped(each))) ?? read(unescaped(text))

const emptyFor = (part: string | number): Tree => (typeof part === 'number' ? [] : Object.create(null))

const isTreeFor = (value: unknown, part: string | number): value is Tree =>
  typeof value === 'object' && value !== null && Array.isArray(value) === (typeof part === 'number')

const put = (tree: Tree, parts: readonly (string | number)[], value: unknown): void => {
  let at = tree as Record<string | number, unknown>
  for (const [index, part] of parts.entries()) {
    const next = parts[index + 1]
    if (next === undefined) {
      at[part] = value
      return
    }
    if (!isTreeFor(at[part], next)) at[part] = emptyFor(next)
    at = at[part] as Record<string | number, unknown>
  }
}

const parseJson = (path: string, text: string): unknown => {
  try {
    return readJson(text)
  } catch {
    return refuse(path, 'is not JSON')
  }
}

/** A values file in JSON; null without values. */
export const writeSetValues = ({ set, setString, setJson }: SetValues): string | null => {
  if (set.length + setString.length + setJson.length === 0) return null
  const tree: Tree = Object.create(null)
  for (const [path, text] of setJson) put(tree, partsOf(path), parseJson(path, text))
  for (const [path, text] of set) put(tree, partsOf(path), readValue(text, typed))
  for (const [path, text] of setString) put(tree, partsOf(path), readValue(text, String))
  return JSON.stringify(tree)
}

const variableName = /\b(?:slipway|qovery)\.env\.([-._A-Za-z][-.\w]{0,254})/g

/** The limit for all values of a chart together. */
export interface ValuesRoom {
  chars: number
  /** References to variables: each is searched for under every name that it could mean. */
  references: number
}

export const valuesRoom = (): ValuesRoom => ({ chars: 1 << 20, references: 5000 })

const take = (room: ValuesRoom, what: keyof ValuesRoom, count: number): void => {
  room[what] -= count
  if (room[what] >= 0) return
  const why =
    what === 'chars'
      ? 'are larger than 1 MiB together'
      : `refer to variables more than ${valuesRoom().references} times`
  throw new DeploymentError('values_refused', `The values of the chart ${why}.`)
}

/** The longest known key with which a text begins and that ends at a word's end; null without one. */
const keyIn = (text: string, variables: Readonly<Record<string, string>>): string | null => {
  for (let end = text.length; end > 0; end -= 1)
    if (!/^\w/.test(text.slice(end, end + 1)) && Object.hasOwn(variables, text.slice(0, end))) return text.slice(0, end)
  return null
}

/**
 * Values of a service's variables in place of `slipway.env.NAME`, or the same with `qovery.` as in existing charts. A
 * dot or a dash belongs to the name if there is such a variable. Counts the result against the room while it is made:
 * a short text can name a long variable repeatedly. Throws a `DeploymentError` when there is no more.
 */
export const withVariables = (
  text: string,
  variables: Readonly<Record<string, string>>,
  room: ValuesRoom = valuesRoom(),
): string => {
  const pieces: string[] = []
  let at = 0
  const add = (piece: string): void => {
    take(room, 'chars', piece.length)
    pieces.push(piece)
  }
  if (text.length > room.chars) take(room, 'chars', text.length)
  const pattern = new RegExp(variableName)
  for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
    const written = match[1]!
    const start = pattern.lastIndex - written.length
    take(room, 'references', 1)
    const key = keyIn(written, variables)
    if (key !== null) {
      add(text.slice(at, match.index))
      add(variables[key]!)
    }
    // The text after the name may be another reference.
    pattern.lastIndex = start + (key ?? /^[-.]*\w*/.exec(written)![0]).length
    if (key !== null) at = pattern.lastIndex
  }
  add(text.slice(at))
  return pieces.join('')
}
