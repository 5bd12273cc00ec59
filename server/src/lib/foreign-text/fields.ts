/** Reads values that others wrote, once they are parsed: nothing is assumed to have its form. Pure. */

export type Json = Record<string, unknown>

export const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export const at = (value: unknown, ...path: string[]): unknown =>
  path.reduce<unknown>(
    (inner, name) => (isObject(inner) && Object.hasOwn(inner, name) ? inner[name] : undefined),
    value,
  )

export const textAt = (value: unknown, ...path: string[]): string => {
  const found = at(value, ...path)
  return typeof found === 'string' ? found : ''
}

export const listOf = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isObject) : [])

export const objectOf = (value: unknown): Json => (isObject(value) ? value : {})
