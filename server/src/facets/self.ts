/** Who a facet is made for: the names that a kind's paths, operations and summaries are made of. */
import { nodeInPath, type Operation, type Owner } from '../api/operation.ts'
import type { Kind } from '../kinds.ts'

export interface Self {
  kind: Kind
  /** First word of its paths: `argocdApp`. */
  path: string
  /** The word in operation ids: `ArgoCdApp`. */
  word: string
  /** For summaries: `an Argo CD app`. */
  words: string
}

/** What a kind can do beside being listed, created, read and changed. */
export type Facet = (self: Self) => Operation[]

export const paramOf = ({ path }: Self): string => `${path}Id`

/** `/application/{applicationId}` */
export const itemOf = (self: Self): string => `/${self.path}/{${paramOf(self)}}`

export const ownerOf = (self: Self): Owner => nodeInPath(self.kind, paramOf(self))
