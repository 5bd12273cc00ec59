/** The kind that a facet is made for: the names used in its paths, operations and summaries. */
import { nodeInPath, type Operation, type Owner } from '../api/operations/operation.ts'
import type { Kind } from '../kinds.ts'
import { isUuid } from '../lib/ids.ts'
import type { Queryable } from '../store/database.ts'
import type { Node } from '../store/tree.ts'

export interface Self {
  kind: Kind
  /** The first part of its paths: `argocdApp`. */
  path: string
  /** Its name in operation ids: `ArgoCdApp`. */
  noun: string
  /** For summaries: `an Argo CD app`. */
  nounWithArticle: string
}

/** Operations of a kind besides list, create, read and change. */
export type Facet = (self: Self) => Operation[]

export const paramOf = ({ path }: Self): string => `${path}Id`

/** `/application/{applicationId}` */
export const itemOf = (self: Self): string => `/${self.path}/{${paramOf(self)}}`

export const ownerOf = (self: Self): Owner => nodeInPath(self.kind, paramOf(self))

/** What an operation on one service declares. */
export const onService = (self: Self) => ({ area: 'projects' as const, owner: ownerOf(self) })

/** The service in the path, if it has the part in the path: `find` returns null if not. */
export const onPart = (
  self: Self,
  [kind, param]: readonly [kind: string, param: string],
  find: (db: Queryable, service: Node, id: string) => Promise<Node | null>,
) => {
  const service = ownerOf(self)
  const owner: Owner = {
    kind,
    param,
    parentParam: paramOf(self),
    async find(db, params, principal) {
      const { [param]: id } = params
      const node = typeof id === 'string' && isUuid(id) ? await service.find(db, params, principal) : null
      return node === null ? null : find(db, node, id!)
    },
  }
  return { area: 'projects' as const, owner }
}
