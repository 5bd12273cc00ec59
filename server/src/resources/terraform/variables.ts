/**
 * Variables of a terraform service. A secret one is sealed with the service's row, one column per key; it appears in no
 * configuration, record or audit row, and a change that leaves out its value keeps it.
 */
import Type from 'typebox'
import type { Context } from '../../api/operations/operation.ts'
import type { Answered, Change, Spec, Write } from '../../api/operations/resource.ts'
import { Flag, List, Maybe, Text } from '../../api/operations/schema.ts'
import { invalidField } from '../../lib/errors.ts'
import { Secret } from '../../lib/secret.ts'
import type { Queryable } from '../../store/database.ts'
import { insidePath } from '../service/git-source.ts'

const field = 'terraform_variables_source'

const Variable = () =>
  Type.Object({
    key: Text(255, { pattern: '^[A-Za-z_][A-Za-z0-9_-]*$' }),
    value: Maybe(Text(65_536)),
    secret: Maybe(Flag({ default: false })),
  })

export const VariablesSource = () =>
  Type.Object({
    tf_var_file_paths: Maybe(List(Text(1024, { minLength: 1 }), 50, { default: [] })),
    tf_vars: Maybe(List(Variable(), 500, { default: [] })),
  })

interface KeptVariable {
  key: string
  /** Absent for a secret that stays unchanged. */
  value?: string | Secret
  secret: boolean
}

interface Source {
  tf_var_file_paths: string[]
  tf_vars: KeptVariable[]
}

const sourceOf = (spec: Spec): Source =>
  ({ tf_var_file_paths: [], tf_vars: [], ...(spec[field] as Partial<Source> | undefined) }) as Source

const isKnownSecret = (before: Source, key: string): boolean =>
  before.tf_vars.some((one) => one.key === key && one.secret)

/** Validates and completes the variables. */
export const completeVariables = (body: Spec, { previous }: Change): Source => {
  const { tf_var_file_paths: paths, tf_vars: variables } = sourceOf(body)
  const before = sourceOf(previous?.spec ?? {})
  const seen = new Set<string>()
  variables.forEach(({ key, value, secret }, index) => {
    const at = `/${field}/tf_vars/${index}`
    if (seen.has(key)) throw invalidField(`${at}/key`, 'is used twice')
    seen.add(key)
    if (value === undefined && !(secret && isKnownSecret(before, key))) throw invalidField(`${at}/value`, 'is required')
  })
  const inside = paths.map((path, index) => insidePath(`/${field}/tf_var_file_paths/${index}`, path))
  return { tf_var_file_paths: inside, tf_vars: variables }
}

/** The column of a row's sealed values. */
const columnOf = (key: string): string => `tf_vars.${key}`

/** Seals the secrets of a write, and deletes those that are no longer listed. */
export const writeSecrets = async (tx: Queryable, spec: Spec, context: Context, { id }: Change): Promise<void> => {
  const secrets = sourceOf(spec).tf_vars.filter(({ secret }) => secret)
  const sealed: Record<string, string> = {}
  for (const { key, value } of secrets) {
    if (!(value instanceof Secret)) continue
    const place = { table: 'node', row: id, column: columnOf(key) }
    sealed[place.column] = await context.parts.sealer.seal(context.principal.organizationId, place, value.reveal())
  }
  await tx.query(
    `update node set sealed = coalesce((select jsonb_object_agg(key, value) from jsonb_each(sealed || $2::jsonb)
       where not starts_with(key, 'tf_vars.') or key = any($3)), '{}') where id = $1`,
    [id, JSON.stringify(sealed), secrets.map(({ key }) => columnOf(key))],
  )
}

/** Puts the secrets that are sealed with a row back in place, for its clone. */
export const withSecrets = (spec: Spec, sealed: ReadonlyMap<string, Secret>): Spec => {
  const source = sourceOf(spec)
  const open = (one: KeptVariable): KeptVariable => {
    const value = one.secret ? sealed.get(columnOf(one.key)) : undefined
    return value === undefined ? one : { ...one, value }
  }
  return { ...spec, [field]: { ...source, tf_vars: source.tf_vars.map(open) } }
}

/** Wraps secret values so that no JSON shows them, wherever the body is written on the way. */
const withHiddenSecrets = (body: Spec): Spec => {
  const sent = body[field] as Partial<Source> | undefined
  if (sent?.tf_vars === undefined) return body
  const hide = (one: KeptVariable): KeptVariable =>
    one.secret && typeof one.value === 'string' ? { ...one, value: new Secret(one.value) } : one
  return { ...body, [field]: { ...sent, tf_vars: sent.tf_vars.map(hide) } }
}

/** Wraps a create or an edit: hides its secret variables from the start. */
export const hideSecrets = async (context: Context, write: Write): Promise<Answered> => {
  await context.parts.sealer.prepare(context.principal.organizationId)
  return write({ ...context, body: withHiddenSecrets(context.body) })
}

export const viewVariables = ({ tf_vars: variables = [], ...rest }: Partial<Source>) => {
  return {
    ...rest,
    tf_vars: variables.map(({ key, value, secret }) => (secret ? { key, secret } : { key, value: value!, secret })),
  }
}
