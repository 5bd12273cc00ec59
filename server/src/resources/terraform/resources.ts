/**
 * The resources of a Terraform service, from the state after its last run. A state contains secrets, and does not mark
 * all of them: only attributes that name a resource are shown.
 */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { OneOf, Open, Results, Text, Timestamp } from '../../api/operations/schema.ts'
import { conflict } from '../../lib/errors.ts'
import type { Keep } from '../../lib/foreign-text/keep.ts'
import { ForeignTextError, readLargeJson } from '../../lib/foreign-text/read-json.ts'
import { idOf } from '../../lib/ids.ts'

const named = ['id', 'name', 'arn', 'region', 'location', 'zone', 'self_link', 'urn'] as const
const maxResources = 5000

interface StateInstance {
  index_key?: unknown
  attributes?: Record<string, unknown> | null
  sensitive_attributes?: unknown
}

interface StateResource {
  mode?: unknown
  type?: unknown
  name?: unknown
  provider?: unknown
  module?: unknown
  instances?: StateInstance[]
}

interface Resource {
  id: string
  resource_type: string
  name: string
  address: string
  provider: string
  mode: 'managed' | 'data'
  attributes: Record<string, unknown>
  extracted_at: string
}

/** First steps of the paths that the state itself marks as sensitive. */
const sensitiveIn = (paths: unknown): Set<string> => {
  const firsts = (Array.isArray(paths) ? paths : []).map((path: unknown) => (Array.isArray(path) ? path[0] : path))
  return new Set(firsts.map((step) => String((step as { value?: unknown } | null)?.value ?? '')))
}

/** A resource of a type that makes secrets may have one as its name. */
const makesSecrets = /password|secret|token|private_key|credential|certificate/i

const attributesOf = (type: string, { attributes, sensitive_attributes: paths }: StateInstance) => {
  if (makesSecrets.test(type)) return {}
  const hidden = sensitiveIn(paths)
  const shown = named.flatMap((name) => {
    const value = attributes?.[name]
    return typeof value === 'string' && value.length <= 2048 && !hidden.has(name) ? [[name, value] as const] : []
  })
  return Object.fromEntries(shown)
}

const keyOf = (key: unknown): string =>
  typeof key === 'number' ? `[${key}]` : typeof key === 'string' ? `[${JSON.stringify(key)}]` : ''

const keep: Keep = {
  resources: [
    {
      ...{ mode: true, type: true, name: true, provider: true, module: true },
      instances: [
        {
          index_key: true,
          attributes: Object.fromEntries(named.map((name) => [name, true])),
          sensitive_attributes: 'any',
        },
      ],
    },
  ],
}

/** All parts of a state that are shown; none of a text that is not one. */
const readShown = async (text: string, owner: string): Promise<StateResource[]> => {
  const bounds = { mostBytes: 64 << 20, mostValues: 4_000_000, mostKept: 500_000, owner, keep }
  const state = await readLargeJson(text, bounds).catch((error: unknown) => {
    if (!(error instanceof ForeignTextError)) throw error
    if (error.code === 'malformed') return {}
    throw conflict('state_too_large', 'The state of this service is too large to list its resources.')
  })
  const { resources } = (state ?? {}) as { resources?: unknown }
  return Array.isArray(resources) ? (resources as StateResource[]) : []
}

/** The resources in the text of a state; none in other texts. `owner`: the organization whose state it is. */
export const resourcesIn = async (text: string, serviceId: string, at: string, owner: string): Promise<Resource[]> => {
  const all = await readShown(text, owner)
  const found = all.flatMap((resource): Resource[] => {
    const { type, name, provider, module: inModule } = resource
    if (typeof type !== 'string' || typeof name !== 'string') return []
    const mode = resource.mode === 'data' ? 'data' : 'managed'
    const prefix = [...(typeof inModule === 'string' ? [inModule] : []), ...(mode === 'data' ? ['data'] : [])]
    const base = [...prefix, type, name].join('.')
    const maker = /"([^"]+)"/.exec(String(provider ?? ''))?.[1] ?? ''
    return (Array.isArray(resource.instances) ? resource.instances : []).map((instance) => {
      const address = `${base}${keyOf(instance?.index_key)}`
      const attributes = attributesOf(type, instance ?? {})
      return {
        id: idOf(serviceId, address),
        resource_type: type,
        name,
        address,
        provider: maker,
        mode,
        attributes,
        extracted_at: at,
      }
    })
  })
  return found.slice(0, maxResources)
}

const readState = async ({ parts, node, principal }: Context): Promise<{ text: string; at: string } | null> => {
  const [row] = await parts.database.query<{ sealed: string | null; at: Date }>(
    'select sealed, updated_at as at from task_state where id = $1',
    [node.id],
  )
  if (row === undefined || row.sealed === null) return null
  const place = { table: 'task_state', row: node.id, column: 'sealed' }
  const opened = await parts.sealer.open(principal.organizationId, place, row.sealed)
  return { text: opened.reveal(), at: row.at.toISOString() }
}

export const listTerraformResources: Operation = operation({
  id: 'getTerraformResources',
  ...reading,
  path: '/terraform/{terraformId}/terraformResources',
  tag: 'Terraform Resources',
  summary:
    'List what a terraform service manages, from the state that is kept here; of the attributes only names, never secrets. Empty with a backend of its own',
  area: 'projects',
  owner: nodeInPath('terraform', 'terraformId'),
  answer: Results(
    Type.Object({
      id: Text(),
      resource_type: Text(),
      name: Text(),
      address: Text(4096),
      provider: Text(),
      mode: OneOf(['managed', 'data']),
      attributes: Open(),
      extracted_at: Timestamp(),
    }),
  ),
  async run(context) {
    const state = await readState(context as Context)
    return {
      results:
        state === null
          ? []
          : await resourcesIn(state.text, context.node.id, state.at, context.principal.organizationId),
    }
  },
})
