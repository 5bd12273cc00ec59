/**
 * JSON that every parser reads in the same way. What we check here the engine parses again with its own parser, which
 * ignores the case of names and treats duplicate names differently: such texts are refused. Pure.
 */

import { readJson } from '../lib/foreign-text/read-json.ts'

/** Every name before a colon; strings and names end at their closing quote. */
const countNames = (text: string): number => {
  let count = 0
  for (const [, colon] of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"\s*(:?)/g)) if (colon === ':') count += 1
  return count
}

/** The names in a parsed value, and those that another parser could read differently. */
const readNames = (value: unknown, known: ReadonlyMap<string, string>): { count: number; strange: boolean } => {
  let count = 0
  let strange = false
  const open = [value]
  while (open.length > 0) {
    const each = open.pop()
    if (typeof each !== 'object' || each === null) continue
    if (!Array.isArray(each))
      for (const name of Object.keys(each)) {
        count += 1
        const meant = known.get(name.toLowerCase())
        // Some letters outside ASCII fold to ASCII ones.
        strange ||= !/^[ -~]*$/.test(name) || (meant !== undefined && meant !== name)
      }
    for (const inner of Object.values(each)) open.push(inner)
  }
  return { count, strange }
}

/** Parses a text; null if it is not JSON, has more values than a manifest can need, or `names` in it could be read in two ways. */
export const parsePlainJson = (text: string, names: readonly string[]): unknown => {
  let value: unknown
  try {
    value = readJson(text, { mostValues: 20_000 })
  } catch {
    return null
  }
  const { count, strange } = readNames(value, new Map(names.map((name) => [name.toLowerCase(), name])))
  return strange || count !== countNames(text) ? null : value
}
