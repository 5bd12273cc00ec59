/**
 * The unit of the API: one value with method, path, schemas, scope and what to do. Routes, documentation, authorization
 * and its tests are folds over arrays of these; nothing else adds a route.
 */
import type { Static, TObject, TSchema } from 'typebox'
import type { WebSocket } from 'ws'
import { isUuid } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { findNode, type Node, type RecordSql } from '../../store/tree.ts'
import { areas, type Need, type Scope, scopes, usesCluster } from '../auth/permissions.ts'
import type { Principal } from '../auth/principal.ts'
import type { Context } from './context.ts'

export { type Scope, scopes } from '../auth/permissions.ts'
export type { Account, Membership, Principal } from '../auth/principal.ts'
export type { Context, Fields } from './context.ts'

/** How the organization of a request is found: through the row that the path names, if the caller may see it. */
export interface Owner {
  /** Kind of the row that the id must be of: a tree kind, `service` for any of them, `deployment`. */
  kind: string
  /** Name of the path parameter; null if the path has none and the caller's own organization is meant. */
  param: string | null
  /** Path parameter that must be the id of the row's parent. */
  parentParam: string | null
  /** The id is in the query, not in the path. */
  inQuery?: boolean
  find(db: Queryable, params: Record<string, string>, principal: Principal): Promise<Node | null>
}

/**
 * A row of the tree by a path parameter; `record` is SQL to read in the same statement, so that a read takes only one.
 */
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

/** The caller's organization, named in the path: needs no query, because tokens are deleted with it. */
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

/** JSON made elsewhere (in SQL) and passed through unchanged; `version` represents its content in the ETag. */
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

/** A tar archive with gzip. */
export const archiveType = 'application/gzip'

/** Whether an operation answers a list, which has an ETag. */
export const isList = ({ method, answer }: Pick<Operation, 'method' | 'answer'>): boolean =>
  method === 'GET' && Object.hasOwn((answer as { properties?: object } | undefined)?.properties ?? {}, 'results')

export const etagOf = (version: string): string => `W/"${version}"`

/** Answers that are plain text: `run` resolves to a string. */
const textTypes = ['application/x-yaml', 'text/plain'] as const
type TextType = (typeof textTypes)[number]

export const isTextType = (type: string | undefined): type is TextType =>
  textTypes.some((textType) => textType === type)

/** The fields that every operation declares, whatever its types. */
interface Described extends Need {
  /** OpenAPI `operationId`. */
  id: string
  tag: string
  summary: string
  owner: Owner
  /** Finds the same row with only its `version`, for requests with If-None-Match. */
  versionOwner?: Owner
  /** True if the declared body may be absent, empty or null. */
  bodyOptional?: boolean
  /** True if it refuses fields marked `Refused` itself, because it compares with the stored value (`refuseMarked`). */
  refusesMarked?: true
  /** Fill in the schema's defaults for fields missing in the body (creates). */
  defaults?: boolean
  status: 200 | 201 | 202 | 204
  /** Status of an answer without content, if there may be nothing to do: `run` then resolves to undefined. */
  emptyStatus?: 204
  /** Another possible answer, such as a plan instead of acting: `run` then resolves to an `OtherAnswer`. */
  other?: { status: 200; answer: TSchema; description: string }
  /** Content type of the answer if it is not JSON; `websocket` for an upgrade, `…/octet-stream` for bytes. */
  produces?: 'text/event-stream' | 'websocket' | 'application/octet-stream' | TextType
  /**
   * Content type of a body that is not JSON. Text: `run` gets it as `body.text`, and JSON is accepted too. An archive:
   * `run` reads `upload`, however large it is.
   */
  consumes?: 'application/x-yaml' | typeof archiveType
}

type Named<Path extends string> = Path extends `${string}{${infer Name}}${infer Rest}` ? Name | Named<Rest> : never
/** The parameters that a path names; any name if the path is made at run time. */
type ParamsOf<Path extends string> = string extends Path ? Record<string, string> : { [Name in Named<Path>]: string }

/** The fields that a schema declares; none without a schema. */
export type FieldsOf<Schema> = Schema extends TObject ? Static<Schema> : Record<never, never>

/** A value that the answer's schema allows, or JSON that was made elsewhere. */
type AnswerOf<Schema> = Schema extends TSchema ? Static<Schema> | JsonText | OtherAnswer | undefined : unknown

/** An operation as its author writes it: the schemas determine the input of `run` and its possible answers. */
interface Definition<Path extends string, Query, Body, Answer> extends Described {
  /** Literal, with `{camelId}`. */
  path: Path
  query?: Query
  body?: Body
  /** Schema of the answer; absent where the status has no body. */
  answer?: Answer
  run?(context: Context<FieldsOf<Body>, FieldsOf<Query>, ParamsOf<Path>>): Promise<AnswerOf<Answer>>
  socket?(context: Context<FieldsOf<Body>, FieldsOf<Query>, ParamsOf<Path>>, socket: WebSocket): void
}

const made = Symbol('made by operation()')

/** An operation in the list of all: its schemas are known only at run time. Made by `operation` and in no other way. */
export interface Operation extends Described {
  readonly [made]: true
  path: string
  query?: TObject
  body?: TObject
  answer?: TSchema
  run?(context: Context): Promise<unknown>
  socket?(context: Context, socket: WebSocket): void
}

/** Checks a definition against its own schemas and erases its types: the only place that does. */
export const operation = <
  Path extends string,
  Query extends TObject | undefined = undefined,
  Body extends TObject | undefined = undefined,
  Answer extends TSchema | undefined = undefined,
>(
  definition: Definition<Path, Query, Body, Answer>,
): Operation => ({ ...definition, [made]: true }) as Operation

/** What most operations of these kinds have in common. */
export const reading = { method: 'GET', scope: 'Read', status: 200 } as const
export const creating = { method: 'POST', scope: 'Write', status: 201 } as const
export const editing = { method: 'PUT', scope: 'Write', status: 200 } as const
export const removing = { method: 'DELETE', scope: 'Admin', status: 204 } as const

/** Whether a set of scopes admits an operation. */
export const admits = (held: ReadonlySet<Scope>, operation: Pick<Operation, 'scope' | 'reads'>): boolean => {
  if (held.has('Admin')) return true
  if (operation.scope !== 'Read') return held.has(operation.scope)
  if (operation.reads === 'sensitive') return held.has('Read') || held.has('Write')
  return held.size > 0
}

/** Throws for an operation that would grant access by mistake. */
export const assertComplete = (operations: readonly Operation[]): void => {
  const seen = new Set<string>()
  for (const operation of operations) {
    if (!scopes.includes(operation.scope)) throw new Error(`the operation ${operation.id} declares no scope`)
    if (!areas.includes(operation.area))
      throw new Error(`the operation ${operation.id} declares no area of permissions`)
    if (usesCluster(operation) && operation.cluster === undefined)
      throw new Error(`the operation ${operation.id} does not declare what it needs of a cluster`)
    if (operation.owner === undefined) throw new Error(`the operation ${operation.id} declares no owner`)
    for (const key of [operation.id, `${operation.method} ${operation.path}`]) {
      if (seen.has(key)) throw new Error(`two operations are called ${key}`)
      seen.add(key)
    }
  }
}
