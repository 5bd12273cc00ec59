/**
 * JSON that every parser reads in the same way. What we check here the engine parses again with its own parser, which
 * ignores the case of names and treats duplicate names differently: such texts are refused. Pure.
 */

/** Every name that stands before a colon; strings and names alike end where their quotes do. */
const countNames = (text: string): number => {
  let count = 0
  for (const [, colon] of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"\s*(:?)/g)) if (colon === ':') count += 1
  return count
}

/** Names in a parsed value, and those of them that another reader could take for another name. */
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
        // Outside of ASCII are letters that fold to others.
        strange ||= !/^[ -~]*$/.test(name) || (meant !== undefined && meant !== name)
      }
    for (const inner of Object.values(each)) open.push(inner)
  }
  return { count, strange }
}

/** The value of a text; null for what is no JSON, or could be read in two ways as regards `names`. */
export const parsePlainJson = (text: string, names: readonly string[]): unknown => {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return null
  }
  const { count, strange } = readNames(value, new Map(names.map((name) => [name.toLowerCase(), name])))
  return strange || count !== countNames(text) ? null : value
}
