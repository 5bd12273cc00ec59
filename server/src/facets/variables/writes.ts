/** Writes of variables: in the request's transaction, with their audit row. */
import type { Context } from '../../api/operations/operation.ts'
import { auditOf, placeOf } from '../../api/operations/resource.ts'
import { kindsWith, typeOf } from '../../kinds.ts'
import { notFound } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { writeAudit } from '../../store/tree.ts'
import { loadPlace, loadPlaceInContext, type VariablePlace } from '../../variables/places.ts'
import { findVariable, type VariableRecord } from '../../variables/records.ts'

export const serviceScopes: readonly string[] = kindsWith(({ variables }) => variables !== null).map(typeOf)

/** Scopes of places that can have variables, from the widest to those of services. */
export const variableScopes: readonly string[] = ['PROJECT', 'ENVIRONMENT', ...serviceScopes]

const readBy =
  <Found extends VariablePlace>(load: (db: Queryable, id: string) => Promise<Found | null>) =>
  async ({ db, principal }: Context, id: string): Promise<Found> => {
    const place = isUuid(id) ? await load(db, id.toLowerCase()) : null
    if (place === null || !variableScopes.includes(place.scope) || place.organizationId !== principal.organizationId)
      throw notFound()
    return place
  }

/** A place in the caller's organization that can have variables; 404 for any other id. */
export const readPlace = readBy(loadPlace)

/** The same with its built-in variables. */
export const readPlaceInContext = readBy(loadPlaceInContext)

/** The row in the path, if it is set at this place and belongs to this family; 404 for any other. */
export const readOwnRow = async (
  context: Context,
  placeId: string,
  id: string,
  isSecret: boolean,
): Promise<VariableRecord> => {
  const row = isUuid(id) ? await findVariable(context.db, context.principal.organizationId, id.toLowerCase()) : null
  if (row === null || row.parent_id !== placeId || row.is_secret !== isSecret) throw notFound()
  return row
}

type Verb = 'CREATE' | 'UPDATE' | 'DELETE'

const target = (place: VariablePlace, isSecret: boolean) => ({
  target: place.scope,
  subTarget: isSecret ? 'SECRET' : 'VARIABLE',
})

const audit = (context: Context, tx: Queryable, verb: Verb, place: VariablePlace, row: VariableRecord): Promise<void> =>
  writeAudit(
    tx,
    place.organizationId,
    { id: place.id, name: context.node.name },
    auditOf(context, verb, target(place, row.is_secret), placeOf(context.node), { key: row.key }),
  )

/** Runs a write and returns its record. */
export const writeRow = async <Shown>(
  context: Context,
  place: VariablePlace,
  verb: Verb,
  work: (tx: Queryable) => Promise<VariableRecord>,
  show: (row: VariableRecord) => Shown,
): Promise<Shown> => {
  await context.parts.sealer.prepare(place.organizationId)
  return context.transaction(async (tx) => {
    const row = await work(tx)
    await audit(context, tx, verb, place, row)
    return show(row)
  })
}
