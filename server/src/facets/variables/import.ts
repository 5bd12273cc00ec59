/** Imports many variables at once, each in its own scope, all in one transaction. */
import type { Context } from '../../api/operations/operation.ts'
import { auditOf, placeOf } from '../../api/operations/resource.ts'
import { ApiError, invalidField } from '../../lib/errors.ts'
import { writeAudit } from '../../store/tree.ts'
import { createVariable } from '../../variables/change.ts'
import { parseDotenv } from '../../variables/dotenv.ts'
import type { VariablePlace } from '../../variables/places.ts'
import { listVisible } from '../../variables/records.ts'
import { checkKey, checkValue } from '../../variables/rules.ts'
import { readPlace } from './writes.ts'

interface ImportItem {
  name: string
  value: string
  scope: string
  is_secret: boolean
}

interface ImportBody {
  overwrite?: boolean
  vars?: ImportItem[]
  dotenv?: { text: string; scope?: string; is_secret?: boolean }
}

const maxItems = 1000

/** The variables to set: the items sent, then those in the text. */
const itemsOf = ({ vars = [], dotenv }: ImportBody, service: VariablePlace): ImportItem[] => {
  if (dotenv === undefined) return vars
  const { text, scope = service.scope, is_secret = false } = dotenv
  const read = parseDotenv(text, '/dotenv/text').map(({ key, value }) => ({ name: key, value, scope, is_secret }))
  if (vars.length + read.length > maxItems)
    throw invalidField('/dotenv/text', `must have at most ${maxItems} variables`)
  return [...vars, ...read]
}

/** The places that an import for this service may write to, by scope. */
const placesOf = async (context: Context, service: VariablePlace): Promise<Map<string, VariablePlace>> => {
  const wider = await Promise.all(service.parents.slice(0, -1).map((id) => readPlace(context, id)))
  return new Map([...wider, service].map((place) => [place.scope, place]))
}

const checkItems = (vars: readonly ImportItem[], places: ReadonlyMap<string, VariablePlace>): void => {
  for (const [index, { name, value, scope }] of vars.entries()) {
    checkKey(name, `/vars/${index}/name`)
    checkValue(value, `/vars/${index}/value`)
    if (!places.has(scope)) throw invalidField(`/vars/${index}/scope`, 'is not a scope of this service')
  }
}

/** Already set and not to be replaced: secrets always, variables unless `overwrite`. */
const isKept = (existing: boolean | undefined, item: ImportItem, overwrite: boolean): boolean =>
  existing !== undefined && (existing || item.is_secret || !overwrite)

/** Returns how many were sent and which were set. */
export const importVariables = async (context: Context, service: VariablePlace, body: ImportBody) => {
  if (body.vars === undefined && body.dotenv === undefined) throw invalidField('/vars', 'is required without `dotenv`')
  const vars = itemsOf(body, service)
  const places = await placesOf(context, service)
  checkItems(vars, places)
  for (const scope of new Set(vars.map((item) => item.scope))) await context.authorizeAlso(places.get(scope)!.id)
  const { sealer } = context.parts
  await sealer.prepare(service.organizationId)
  return context.transaction(async (tx) => {
    const rows = await listVisible(tx, service.parents)
    const kinds = new Map(rows.map((row) => [`${row.parent_id} ${row.key}`, row.is_secret]))
    const done: ImportItem[] = []
    for (const item of vars) {
      const place = places.get(item.scope)
      if (place === undefined)
        throw new ApiError(400, 'invalid_request', 'vars: a scope does not belong to this service')
      if (isKept(kinds.get(`${place.id} ${item.name}`), item, body.overwrite === true)) continue
      await createVariable(tx, sealer, place, { key: item.name, value: item.value, isSecret: item.is_secret })
      done.push(item)
    }
    const audit = auditOf(context, 'CREATE', { target: service.scope, subTarget: 'VARIABLE' }, placeOf(context.node), {
      keys: done.map(({ name }) => name),
    })
    const target = { id: service.id, name: context.node.name }
    await writeAudit(tx, service.organizationId, target, { ...audit, eventType: 'IMPORT' })
    const shown = done.map(({ value, ...item }) => (item.is_secret ? item : { ...item, value }))
    return { total_variables_to_import: vars.length, successful_imported_variables: shown }
  })
}
