/** Values as text in Terraform files. Pure. Null and undefined are left out. */

const mark = Symbol('expression')

/** A verbatim expression: a reference. No external value can be one. */
export interface Expression {
  [mark]: string
}

export type Value =
  | string
  | number
  | boolean
  | null
  | undefined
  | Expression
  | readonly Value[]
  | { [name: string]: Value }

export const reference = (expression: string): Expression => ({ [mark]: expression })

const isExpression = (value: object): value is Expression => Object.hasOwn(value, mark)

// JSON has two escapes that Terraform does not.
const escapes: Record<string, string> = { '\\b': '\\u0008', '\\f': '\\u000c' }

/** Quoted text without template sequences. */
export const quoted = (text: string): string =>
  JSON.stringify(text)
    .replaceAll(/\\./g, (written) => escapes[written] ?? written)
    .replaceAll(/[$%](?=\{)/g, (sign) => sign + sign)

const isSet = (value: Value): boolean => value !== null && value !== undefined

const nameOf = (name: string): string => (/^[A-Za-z_][A-Za-z0-9_-]*$/.test(name) ? name : quoted(name))

const fieldsOf = (fields: { [name: string]: Value }, indent: string): string =>
  Object.entries(fields)
    .filter(([, value]) => isSet(value))
    .map(([name, value]) => `${indent}${nameOf(name)} = ${textOf(value, indent)}\n`)
    .join('')

const textOf = (value: Value, indent: string): string => {
  if (typeof value === 'string') return quoted(value)
  if (typeof value !== 'object' || value === null) return String(value)
  const deeper = `${indent}  `
  if (Array.isArray(value)) {
    const items = (value as readonly Value[]).filter(isSet).map((item) => `${deeper}${textOf(item, deeper)},\n`)
    return items.length === 0 ? '[]' : `[\n${items.join('')}${indent}]`
  }
  if (isExpression(value)) return value[mark]
  const fields = fieldsOf(value as { [name: string]: Value }, deeper)
  return fields === '' ? '{}' : `{\n${fields}${indent}}`
}

/** `resource "type" "label" { … }` and the like. */
export const block = (head: string, fields: { [name: string]: Value }): string =>
  `${head} {\n${fieldsOf(fields, '  ')}}\n`

/** Labels made from names, each unique. */
export const createLabels = () => {
  const taken = new Set<string>()
  return (name: string): string => {
    const plain = name
      .toLowerCase()
      .replaceAll(/[^a-z0-9_]+/g, '_')
      .replaceAll(/^_+|_+$/g, '')
    const base = /^[a-z_]/.test(plain) ? plain : `_${plain}`
    let label = base
    for (let at = 2; taken.has(label); at++) label = `${base}_${at}`
    taken.add(label)
    return label
  }
}
