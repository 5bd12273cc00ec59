/**
 * Rewrites references in texts to rows that have been copied: their ids, and the eight digits in other services' keys.
 * Pure.
 */

const reference = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<=_Z)[0-9A-F]{8}(?=_)/g

const digitsOf = (id: string): string => id.slice(0, 8).toUpperCase()

export type Rename = (text: string) => string

/** Replaces the ids of copied rows with the ids of their copies. */
export const renamer = (copies: ReadonlyMap<string, string>): Rename => {
  const digits = [...copies].map(([from, to]) => [digitsOf(from), digitsOf(to)] as const)
  const known = new Map<string, string>([...copies, ...digits])
  return (text) => text.replace(reference, (written) => known.get(written) ?? written)
}

/** The digits of the service in a built-in key; null if it has none. */
export const neighbourOf = (key: string): string | null => /_Z([0-9A-F]{8})_/.exec(key)?.[1] ?? null

export const isNeighbour = (digits: string, serviceIds: Iterable<string>): boolean =>
  [...serviceIds].some((id) => digitsOf(id) === digits)
