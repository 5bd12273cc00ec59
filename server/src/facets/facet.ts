/** The kind that a facet is made for: the names used in its paths, operations and summaries. */
import { nodeInPath, type Operation, type Owner } from '../api/operations/operation.ts'
import type { Kind } from '../kinds.ts'

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
