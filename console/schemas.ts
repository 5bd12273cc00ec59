/** Gives pages the schemas of openapi.json that they make forms from, as modules. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Plugin } from 'vite'

const description = fileURLToPath(new URL('../openapi.json', import.meta.url))

interface Schema {
  $ref?: string
  [name: string]: unknown
}

interface Operation {
  operationId?: string
  requestBody?: { content: Record<string, { schema: Schema }> }
}

interface Description {
  components: { schemas: Record<string, Schema> }
  paths: Record<string, Record<string, Operation>>
}

const forms = [
  ...['Application', 'Container', 'Database', 'Job', 'Helm', 'Terraform', 'ArgocdApp'].map(
    (name) => `${name}EditRequest`,
  ),
  ...['Environment', 'Organization', 'Project'].map((name) => `${name}EditRequest`),
]
const advanced = ['Application', 'Container', 'Job', 'Helm', 'Terraform'].map((name) => `${name}AdvancedSettings`)
/** Modules that pages import, with the names of the schemas that they have. */
const modules: Record<string, readonly string[]> = { 'virtual:forms': forms, 'virtual:advanced': advanced }

/** The schemas of the bodies that forms are made from, complete in themselves: the whole description is a megabyte. */
const readSchemas = (names: readonly string[]): Record<string, unknown> => {
  const text = readFileSync(description, 'utf8')
  const { components, paths } = JSON.parse(text) as Description
  const { schemas } = components
  const operations = Object.values(paths).flatMap((path) => Object.values(path))
  const whole = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(whole)
    if (typeof value !== 'object' || value === null) return value
    const { $ref: named } = value as Schema
    if (named !== undefined) return whole(schemas[named.slice(named.lastIndexOf('/') + 1)])
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, whole(each)]))
  }
  const kindOf = (name: string): string => {
    const kind = name.replace(/(EditRequest|AdvancedSettings)$/, '')
    return kind.charAt(0).toLowerCase() + kind.slice(1)
  }
  /** One that only its operation uses has no name. */
  const bodyOf = (name: string): Schema => {
    const id = `edit${name.replace(/EditRequest$/, '')}`
    const operation = operations.find(({ operationId }) => operationId === id)
    const found = schemas[name] ?? operation?.requestBody?.content['application/json']?.schema
    if (found === undefined) throw new Error(`openapi.json has no schema ${name}`)
    return found
  }
  return Object.fromEntries(names.map((name) => [kindOf(name), whole(bodyOf(name))]))
}

export const schemasPlugin: Plugin = {
  name: 'schemas',
  resolveId: (id) => (Object.hasOwn(modules, id) ? `\0${id}` : null),
  load(id) {
    const names = modules[id.replace('\0', '')]
    if (names === undefined) return null
    this.addWatchFile(description)
    return `export const forms = ${JSON.stringify(readSchemas(names))}`
  },
}
