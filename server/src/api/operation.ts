/**
 * The unit of the API: one value that says method, path, schemas, scope and what to do. Routes, documentation,
 * authorization and its tests are folds over arrays of these; nothing else adds a route.
 */
import type { ServerResponse } from 'node:http'
import type { TObject, TSchema } from 'typebox'
import type { WebSocket } from 'ws'
import { isUuid } from '../lib/ids.ts'
import type { Database, Queryable } from '../store/database.ts'
import { findNode, type Node, type RecordSql } from '../store/tree.ts'
import type { Parts } from './parts.ts'
import type { Place, Role } from './permissions.ts'

export const scopes = ['Admin', 'Read', 'Deploy', 'Write'] as const
export type Scope = (typeof scopes)[number]

/** Somebody who signed in with the OIDC issuer. */
export interface Account {
  id: string
  /** Null unless the issuer says that the address is theirs. */
  email: string | null
}

export interface Membership {
  organizationId: string
  role: Role
}

/** Who asks: the holder of an API token, or an account. */
export interface Principal {
  /** Id of the token or of the account. */
  tokenId: string
  name: string
  /** The caller's own organization; once the gate has found the row that a request is about, the organization of that. */
  organizationId: string
  /** What cannot be told by a role: a role's holders have here what comes nearest to it. */
  scopes: ReadonlySet<Scope>
  createdBy: string | null
  expiresAt: Date | null
  /** Decides instead of the scopes; null for a token with scopes, and for an account that is no member. */
  role: Role | null
  /** Scopes that narrow the role of a token that has both; null where nothing narrows it. */
  within: ReadonlySet<Scope> | null
  /** Null for an API token. */
  account: Account | null
  /** Of an account, the oldest first. */
  memberships: readonly Membership[]
  /** Sees every organization of this installation, and may create them. */
  isOperator: boolean
}

/** How the organization of a request is found: the row that the path names, if it is the caller's. */
export interface Owner {
  /** Kind of the row that the id must be of: a tree kind, `service` for any of them, `deployment`. */
  kind: string
  /** Name of the path parameter, null where the path has none and the caller's own organization is meant. */
  param: string | null
  /** Path parameter that must be the id of the row's parent. */
  parentParam: string | null
  /** The id stands in the query, not in the path. */
  inQuery?: boolean
  find(db: Queryable, params: Record<string, string>, principal: Principal): Promise<Node | null>
}

/** A row of the tree by a path parameter; `record` is SQL to read with it, so that a read is one statement. */
export const nodeInPath = (
  kind: string,
  param: string,
  parentParam: string | null = null,
  record: RecordSql | null = null,
): Owner => {
  const find = findNode(kind, record)
  return {
    kind,
    param,
    parentParam,
    async find(db, params, { organizationId }) {
      const id = params[param]
      if (typeof id !== 'string' || !isUuid(id) || (parentParam !== null && !isUuid(params[parentParam]!))) return null
      const node = await find(db, id, organizationId)
      if (node === null || parentParam === null) return node
      return node.parentId === params[parentParam]!.toLowerCase() ? node : null
    },
  }
}

const organizationNode = (id: string): Node => ({
  id,
  organizationId: id,
  kind: 'organization',
  parentId: null,
  grandparentId: null,
  name: '',
})

/** The caller's organization, named in the path: needs no look at the database, for tokens die with it. */
export const organizationInPath: Owner = {
  kind: 'organization',
  param: 'organizationId',
  parentParam: null,
  async find(_db, params, { organizationId }) {
    return params.organizationId!.toLowerCase() === organizationId ? organizationNode(organizationId) : null
  },
}

/** The caller's organization, where the path names none. */
export const ownOrganization: Owner = {
  kind: 'organization',
  param: null,
  parentParam: null,
  find: async (_db, _params, { organizationId }) => organizationNode(organizationId),
}

/** JSON made elsewhere (in SQL), passed through as it is; `version` stands for its content in the ETag. */
export class JsonText {
  readonly text: string
  readonly version: string | null
  constructor(text: string, version: string | null = null) {
    this.text = text
    this.version = version
  }
}

/** An answer of the second kind that an operation declares (`Operation.other`). */
export class OtherAnswer {
  readonly value: unknown
  constructor(value: unknown) {
    this.value = value
  }
}

export const etagOf = (version: string): string => `W/"${version}"`

export interface Context {
  parts: Parts
  db: Database
  principal: Principal
  /** The row that the path names. */
  node: Node
  params: Record<string, string>
  query: Record<string, unknown>
  /** Only declared fields, with defaults; `{}` when there was no body. */
  body: Record<string, unknown>
  headers: Record<string, string | string[] | undefined>
  requestId: string
  userAgent: string | null
  /** API for a token, CONSOLE for somebody who signed in. */
  origin: string
  /** How the caller reached us, or the proxy of ours that it came by. */
  scheme: 'http:' | 'https:'
  setHeader(name: string, value: string): void
  /**
   * Runs a change in one transaction. What `work` resolves to is the answer of the operation: it is kept, in the same
   * transaction, under the request's Idempotency-Key.
   */
  transaction<T>(work: (tx: Queryable) => Promise<T>): Promise<T>
  /** The same for a change of a single statement, which needs no transaction of its own. */
  write<T>(work: (db: Queryable) => Promise<T>): Promise<T>
  /**
   * For what only the body names, a row by its id or a place: throws unless the caller may do this there too. A row of
   * another organization of the caller's makes that the organization of the request.
   */
  demand(where: string | Place): Promise<void>
  /** For streams: takes the answer out of the machinery's hands. */
  hijack(): ServerResponse
}

/** Answers that are text as they are: `run` resolves to a string. */
export const textTypes = ['application/x-yaml', 'text/plain'] as const
export type TextType = (typeof textTypes)[number]

export const isTextType = (type: string | undefined): type is TextType =>
  textTypes.some((textType) => textType === type)

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE'

export interface Operation {
  /** OpenAPI `operationId`. */
  id: string
  method: Method
  /** Literal, with `{camelId}`. */
  path: string
  tag: string
  summary: string
  /** `Read` admits every scope; see `reads`. */
  scope: Scope
  /** `sensitive`: a read that may show what a deployer need not see. Deploy alone does not admit. */
  reads?: 'sensitive'
  owner: Owner
  /** Finds the same row with its `version` only, for requests that come with If-None-Match. */
  versionOwner?: Owner
  query?: TObject
  body?: TObject
  /** True where the body may be absent, empty or null although it is declared. */
  bodyOptional?: boolean
  /** Fill in the schema's defaults for what the body leaves out (creates). */
  defaults?: boolean
  status: 200 | 201 | 202 | 204
  /** Status of an answer without content, where there may be nothing to do: `run` then resolves to undefined. */
  emptyStatus?: 204
  /** What else it may answer, where it is asked for something else than to be done: `run` resolves to an `OtherAnswer`. */
  other?: { status: 200; answer: TSchema; description: string }
  /** Schema of the answer; absent where the status has no body. */
  answer?: TSchema
  /** Content type of the answer where it is not JSON; `websocket` for an upgrade, `…/octet-stream` for bytes. */
  produces?: 'text/event-stream' | 'websocket' | 'application/octet-stream' | TextType
  /** Content type of a body that is text and not JSON: `run` finds it as `body.text`. JSON is taken for it too. */
  consumes?: 'application/x-yaml'
  run?(context: Context): Promise<unknown>
  socket?(context: Context, socket: WebSocket): void
}

/** Whether a set of scopes admits an operation (design: trust 5.4). */
export const admits = (held: ReadonlySet<Scope>, operation: Pick<Operation, 'scope' | 'reads'>): boolean => {
  if (held.has('Admin')) return true
  if (operation.scope !== 'Read') return held.has(operation.scope)
  if (operation.reads === 'sensitive') return held.has('Read') || held.has('Write')
  return held.size > 0
}

/** Throws for an operation that would open a door by mistake. */
export const assertComplete = (operations: readonly Operation[]): void => {
  const seen = new Set<string>()
  for (const operation of operations) {
    if (!scopes.includes(operation.scope)) throw new Error(`the operation ${operation.id} declares no scope`)
    if (operation.owner === undefined) throw new Error(`the operation ${operation.id} declares no owner`)
    for (const key of [operation.id, `${operation.method} ${operation.path}`]) {
      if (seen.has(key)) throw new Error(`two operations are called ${key}`)
      seen.add(key)
    }
  }
}
