/**
 * The published schemas of Kubernetes' API, of the oldest and the newest minor that we support: in
 * `schemas/`, cut out of `api/openapi-spec/swagger.json` of the Go module k8s.io/kubernetes, without descriptions. Beside
 * each of them a release of the Gateway API, out of `config/crd` of the Go module sigs.k8s.io/gateway-api: the oldest that
 * has GRPCRoute in v1, and the experimental channel of a new one, which has sessionPersistence.
 */
import { readFileSync } from 'node:fs'
import type { Manifest } from '../../../src/runtimes/kubernetes/manifests/describe.ts'
import type { Json } from '../api.ts'

type Definitions = Readonly<Record<string, Json>>

const read = (version: string): Definitions =>
  JSON.parse(readFileSync(new URL(`./schemas/${version}.json`, import.meta.url), 'utf8')) as Definitions

export const published: Readonly<Record<string, Definitions>> = {
  'v1.28': { ...read('v1.28'), ...read('gateway-v1.1') },
  'v1.35': { ...read('v1.35'), ...read('gateway-v1.4-experimental') },
}

const kindOf = (value: unknown): string =>
  Array.isArray(value) ? 'array' : Number.isInteger(value) ? 'integer' : typeof value

const problemsOf = (definitions: Definitions, schema: Json, value: Json, path: string): string[] => {
  if (schema.$ref !== undefined) return problemsOf(definitions, definitions[schema.$ref]!, value, path)
  if (schema.format === 'int-or-string')
    return /^(integer|string)$/.test(kindOf(value)) ? [] : [`${path}: neither a number nor a text`]
  if (
    schema.type !== undefined &&
    kindOf(value) !== schema.type &&
    !(schema.type === 'number' && kindOf(value) === 'integer')
  )
    return [`${path}: ${kindOf(value)} instead of ${schema.type}`]
  if (schema.enum !== undefined && !schema.enum.includes(value))
    return [`${path}: ${value} is not one of ${schema.enum}`]
  if (schema.pattern !== undefined && !new RegExp(schema.pattern).test(value)) return [`${path}: not ${schema.pattern}`]
  if (schema.maxItems !== undefined && value.length > schema.maxItems) return [`${path}: too many`]
  if (schema.type === 'array')
    return value.flatMap((each: Json, index: number) => problemsOf(definitions, schema.items, each, `${path}/${index}`))
  if (schema.type !== 'object' && schema.properties === undefined) return []
  const missing = (schema.required ?? []).filter((name: string) => value[name] === undefined)
  return [
    ...missing.map((name: string) => `${path}/${name}: missing`),
    ...Object.entries(value as Json).flatMap(([name, its]) => {
      const known = schema.properties?.[name] ?? schema.additionalProperties
      if (known !== undefined) return problemsOf(definitions, known, its as Json, `${path}/${name}`)
      return schema.properties === undefined ? [] : [`${path}/${name}: unknown`]
    }),
  ]
}

/** What is wrong with a manifest for one of them; unknown fields too, which a cluster would drop without a word. */
export const schemaProblems = (version: string, manifest: Manifest): string[] => {
  const definitions = published[version]!
  const [group = '', name = manifest.apiVersion] = manifest.apiVersion.includes('/')
    ? manifest.apiVersion.split('/')
    : ['core', manifest.apiVersion]
  const found = definitions[`io.k8s.api.${group.replace(/\..*/, '')}.${name}.${manifest.kind}`]
  if (found === undefined) return [`${version} has no ${manifest.apiVersion} ${manifest.kind}`]
  return problemsOf(definitions, found, manifest as Json, manifest.kind)
}
