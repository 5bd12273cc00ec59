/**
 * Data that facets store inside the configuration of a service or cluster, not shown in its record: an edit keeps it,
 * a clone copies it, and changing it changes the row, with an audit row.
 */
import type { Context } from '../../api/operations/operation.ts'
import { auditOf, placeOf, type Spec } from '../../api/operations/resource.ts'
import { auditTargetOf } from '../../kinds.ts'
import { notFound } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import { lockNode, writeAudit } from '../../store/tree.ts'

type InnerField = 'advanced_settings' | 'deployment_restrictions' | 'lock' | 'routes' | 'dns_provider'

export const withoutInner = ({ advanced_settings: _, deployment_restrictions: __, ...record }: Spec): Spec => record

/** The content of the field in a row; `empty` if it was never set. */
export const readInner = async <T>(db: Queryable, id: string, field: InnerField, empty: T): Promise<T> => {
  const [row] = await db.query<{ kept: T | null }>(`select spec -> $2 as kept from node where id = $1`, [id, field])
  return row?.kept ?? empty
}

const update = `update node set spec = jsonb_set(spec, array[$2], $3::jsonb), version = version + 1, updated_by = $4,
  updated_at = clock_timestamp() where id = $1`

export interface InnerChange<T> {
  field: InnerField
  empty: T
  eventType: string
  subTarget?: string
  /** The new content; throws an `ApiError`. */
  change(kept: T): T
}

/** Changes what the row in the path stores, and returns `answer`. */
export const changeInner = <T, Answer>(context: Context, wanted: InnerChange<T>, answer: (kept: T) => Answer) =>
  context.transaction(async (tx) => {
    const { node, principal } = context
    const before = await lockNode(tx, node.id)
    if (before === null) throw notFound()
    const had = (before.spec[wanted.field] as T | undefined) ?? wanted.empty
    const kept = wanted.change(had)
    await tx.query(update, [node.id, wanted.field, JSON.stringify(kept), principal.tokenId])
    const target = { target: auditTargetOf(node.kind), ...(wanted.subTarget && { subTarget: wanted.subTarget }) }
    const audit = auditOf(context, 'UPDATE', target, placeOf(node), { [wanted.field]: kept }, { [wanted.field]: had })
    await writeAudit(tx, principal.organizationId, node, { ...audit, eventType: wanted.eventType })
    return answer(kept)
  })
