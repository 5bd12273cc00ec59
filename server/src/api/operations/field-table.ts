/**
 * The published table of effects (docs/guides/fields.md): by resource, how many fields act, are refused, are only
 * recorded and are discarded on each kind of cluster, and every field that does not act. Pure.
 */
import type { Effect } from './effects.ts'
import { type FieldRow, fieldsOf } from './fields.ts'
import type { Operation } from './operation.ts'

/** A Docker engine, or a cluster that is only recorded: this server has no runtime for it. */
type ClusterKind = 'docker' | 'record'

type Counts = Record<Effect, number>

const services = new Set(['Application', 'ArgoCdApp', 'Container', 'Database', 'Helm', 'Job', 'Terraform'])

const parts =
  / (Main Calls|Actions|Configuration|Deployment History|Deployment Restriction|Custom Domain|Logs|Export|Deployment Rule)$/

/** The resource that an operation is about, by its tag. */
export const resourceOf = ({ tag }: Operation): string => {
  if (/Environment Variable$|Secret$|^Variable/.test(tag)) return 'Variable'
  const name = tag.replace(parts, '')
  return services.has(name.replace(/s$/, '')) || /[^s]s$/.test(name)
    ? name.replace(/ies$/, 'y').replace(/s$/, '')
    : name
}

const kept = new Set(['/name', '/description', '/icon_uri'])

/** On a cluster that is only recorded, fields that would act with a deployment are refused with that deployment. */
const effectOn = (cluster: ClusterKind, row: FieldRow): Effect => {
  if (cluster === 'docker' || row.effect !== 'acts') return row.effect
  const { method } = row.operation
  const deploys = services.has(resourceOf(row.operation)) && method !== 'GET' && method !== 'DELETE'
  return deploys && !kept.has(row.field) ? 'refused' : 'acts'
}

/** A field of a resource once, however many operations take it. */
export interface ResourceField {
  resource: string
  field: string
  docker: Effect
  record: Effect
  reason: string | null
  /** It acts where a module of the operator reads it, or on Kubernetes clusters: `recorded` elsewhere. */
  elsewhere: boolean
  operations: string[]
  /** The values of an enum with the same effect as the field. */
  values: string[]
}

export const resourceFields = (operations: readonly Operation[]): ResourceField[] => {
  const found = new Map<string, ResourceField>()
  for (const row of operations.flatMap(fieldsOf)) {
    const [resource, docker, record] = [resourceOf(row.operation), effectOn('docker', row), effectOn('record', row)]
    const key = [resource, row.field, docker, record].join(' ')
    const { field, reason, elsewhere } = row
    const one = found.get(key) ?? { resource, field, docker, record, reason, elsewhere, operations: [], values: [] }
    one.operations.push(row.operation.id)
    one.values = [...new Set([...one.values, ...row.values])]
    found.set(key, one)
  }
  return [...found.values()]
}

const countEffects = (fields: readonly ResourceField[], cluster: ClusterKind): Counts => {
  const counts: Counts = { acts: 0, refused: 0, recorded: 0, discarded: 0 }
  for (const field of fields) counts[field[cluster]] += 1
  return counts
}

const line = (...cells: (string | number)[]): string => `| ${cells.join(' | ')} |`

const countCells = ({ acts, refused, recorded, discarded }: Counts): number[] => [acts, refused, recorded, discarded]

const countRow = (name: string, fields: readonly ResourceField[]): string =>
  line(name, ...countCells(countEffects(fields, 'docker')), ...countCells(countEffects(fields, 'record')))

const detailRows = (fields: readonly ResourceField[]): string[] => {
  const groups = Map.groupBy(fields, ({ docker, reason, operations }) =>
    JSON.stringify([docker, reason, operations.toSorted()]),
  )
  return [...groups.values()].map((group) => {
    const [{ docker, reason, operations }] = group as [ResourceField]
    const names = group.map(({ field }) => `\`${field}\``).join(' ')
    return line(docker, names, operations.map((id) => `\`${id}\``).join(' '), reason ?? '')
  })
}

const detailsOf = (resource: string, fields: readonly ResourceField[]): string[] => {
  const silent = fields.filter(({ docker }) => docker !== 'acts')
  if (silent.length === 0) return []
  return ['', `## ${resource}`, '| effect | fields | operations | |', '|---|---|---|---|', ...detailRows(silent)]
}

const valueRows = (fields: readonly ResourceField[]): string[] => {
  const closed = fields.filter(({ values }) => values.length > 0)
  const groups = Map.groupBy(closed, ({ docker, values }) => JSON.stringify([docker, values.toSorted()]))
  return [...groups.values()].map((group) => {
    const [{ docker, values }] = group as [ResourceField]
    const byResource = Map.groupBy(group, ({ resource }) => resource)
    const names = [...byResource].map(
      ([resource, own]) => `${resource}: ${[...new Set(own.map(({ field }) => `\`${field}\``))].join(' ')}`,
    )
    return line(docker, values.map((value) => `\`${value === '' ? '""' : value}\``).join(' '), names.join('; '))
  })
}

const valuesSection = (fields: readonly ResourceField[]): string[] => [
  '',
  '## Values',
  'What each value of a closed list does on a Docker engine. It does what its field does, unless it has a row of its own',
  'above, with its field (`/field=VALUE`).',
  '',
  '| effect | values | fields |',
  '|---|---|---|',
  ...valueRows(fields),
]

const introduction = `# What every field does
Made from the schemas by \`server/src/programs/write-fields.ts\`; do not edit.

Whatever a request can say **acts**, is **refused** (400 with the reason, unless it is the default or what is already
set), is only **recorded** (kept and returned for clients, without effect), or **discarded** (accepted, but not even
kept). The description of a field in the OpenAPI
document says so, the response names what this request sent and does not act in the header \`Slipway-Not-Applied\` (JSON
pointers into the body, \`?word\` for the query; also for what is not known at all), and the plan of a deployment
(\`?dry_run=true\`) lists it for each service in \`not_applied\`. Defaults are not named. What protects is never only
recorded or discarded.

A field is a JSON pointer into the body, in which \`*\` is any item, or \`?word\` of the query. "Record" is a cluster that
this server only records: what would act with a deployment is refused there with the deployment.
`

export const fieldGuide = (operations: readonly Operation[]): string => {
  const fields = resourceFields(operations)
  const byResource = [...Map.groupBy(fields, ({ resource }) => resource)].sort(([a], [b]) => (a < b ? -1 : 1))
  return [
    introduction,
    '| resource | Docker: acts | refused | recorded | discarded | Record: acts | refused | recorded | discarded |',
    '|---|---|---|---|---|---|---|---|---|',
    ...byResource.map(([name, own]) => countRow(name, own)),
    countRow('**all**', fields),
    ...byResource.flatMap(([name, own]) => detailsOf(name, own)),
    ...valuesSection(fields),
    '',
  ].join('\n')
}
