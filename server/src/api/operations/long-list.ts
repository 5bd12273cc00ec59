/**
 * Long lists: read together with their parent in one statement. With If-None-Match only their version is read first, so
 * that a 304 builds no list. Both statements check the organization.
 */
import { notFound } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { type ListForm, longList } from '../../store/long-list.ts'
import type { Node } from '../../store/tree.ts'
import { type Context, etagOf, JsonText, nodeInPath, type Owner } from './operation.ts'

/** Represents a list whose version the caller already has: only its ETag is sent. */
const unchanged = '{"results":[]}'

/** Owners and run of the operation that lists the rows of `kind` below a parent. */
export const longListOf = (
  form: ListForm,
  kind: string,
  parent: { kind: string; param: string },
): { owner: Owner; versionOwner: Owner; run(context: Context): Promise<JsonText> } => {
  const list = longList(kind, parent.kind, form)
  const read = async (db: Queryable, id: string, organizationId: string): Promise<Node | null> => {
    const found = await list.read(db, id, organizationId)
    const node = { id, organizationId, kind: parent.kind, parentId: null, grandparentId: null, name: '' }
    return found === null ? null : { ...node, record: found.text, version: found.version }
  }
  const versionOwner = nodeInPath(parent.kind, parent.param, null, list.version)
  const owner: Owner = {
    ...versionOwner,
    async find(db, params, { organizationId }) {
      const id = params[parent.param]
      return typeof id === 'string' && isUuid(id) ? read(db, id.toLowerCase(), organizationId) : null
    },
  }
  return {
    owner,
    versionOwner,
    async run({ db, node, headers }) {
      if (node.version !== undefined) return new JsonText(node.record!, node.version)
      if (headers['if-none-match'] === etagOf(node.record!)) return new JsonText(unchanged, node.record!)
      const found = await read(db, node.id, node.organizationId)
      if (found === null) throw notFound()
      return new JsonText(found.record!, found.version!)
    },
  }
}
