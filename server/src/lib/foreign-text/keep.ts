/**
 * Which parts of a large value are wanted, as plain data: a thread that parses it hands over only these. Pure.
 *
 * `true`: a text, a number, a boolean or null. `'any'`: any value. An object: these fields. A list with one element:
 * each item. A value of another type becomes an empty object or list.
 */
export type Keep = true | 'any' | readonly [Keep] | { readonly [name: string]: Keep }

const isList = (keep: Keep): keep is readonly [Keep] => Array.isArray(keep)

const fieldsOf = (keep: { readonly [name: string]: Keep }, value: object): object => {
  const kept: [string, unknown][] = []
  for (const [name, inner] of Object.entries(keep))
    if (Object.hasOwn(value, name)) kept.push([name, keepOf(inner, (value as Record<string, unknown>)[name])])
  return Object.fromEntries(kept)
}

/** The wanted parts of a value. */
export const keepOf = (keep: Keep, value: unknown): unknown => {
  if (keep === 'any' || typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) return isList(keep) ? value.map((item) => keepOf(keep[0], item)) : []
  return keep === true || isList(keep) ? {} : fieldsOf(keep, value)
}
