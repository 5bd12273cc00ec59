/**
 * Copies of services: the result of a create with the source's configuration, with its secrets. Ids inside (ports,
 * storage), generated passwords and host names are new. Data, custom domains and deployments stay with the source.
 */
import type { Context } from '../../api/operations/operation.ts'
import { type Change, type Spec, sealAll, translateWrite } from '../../api/operations/resource-writes.ts'
import { secretPaths } from '../../api/operations/schema.ts'
import { openStates } from '../../deployments/status/states.ts'
import type { Kind } from '../../kinds.ts'
import { conflict } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import { Secret } from '../../lib/secret.ts'
import type { Queryable } from '../../store/database.ts'
import type { Sealer } from '../../store/keys/seal.ts'
import type { Node } from '../../store/tree.ts'
import type { Rename } from '../../variables/rename.ts'
import type { GitPath } from '../service/git-head.ts'
import { withoutPublishedPorts } from '../service/published-ports.ts'
import type { Service } from '../service/service.ts'

export interface CopySource {
  id: string
  kind: Kind
  name: string
  spec: Spec
  sealed: Record<string, string>
}

/** Rows of services, oldest first, locked until the transaction ends. 409 if one is being deleted. */
export const lockSources = async (tx: Queryable, ids: readonly string[]): Promise<CopySource[]> => {
  const rows = await tx.query<CopySource>(
    `select id, kind, name, spec, sealed from node where id = any($1) order by created_at, id for share`,
    [ids],
  )
  const leaving = await tx.query(
    `select 1 from deployment_service w join deployment d on d.id = w.deployment_id
     where w.service_id = any($1) and w.action = 'DELETE' and d.state in ${openStates} limit 1`,
    [ids],
  )
  if (leaving.length > 0) throw conflict('deletion_in_progress', 'A service in this clone is being deleted.')
  return rows
}

/** The input for a copy; its secrets are in clear in `spec`. */
export interface Copy {
  service: Service
  id: string
  name: string
  parent: Node
  spec: Spec
  sealed: Record<string, string>
}

type At = Record<string, unknown>

const putAt = (spec: Spec, [name, ...below]: readonly string[], value: unknown): Spec => ({
  ...spec,
  [name!]: below.length === 0 ? value : putAt((spec[name!] ?? {}) as Spec, below, value),
})

const readAt = (spec: Spec, path: readonly string[]): unknown =>
  path.reduce<unknown>((inner, name) => (inner as At | null | undefined)?.[name], spec)

const openAll = async (
  sealer: Sealer,
  organizationId: string,
  { id, sealed }: CopySource,
  rename: Rename,
): Promise<Map<string, Secret>> => {
  const opened = new Map<string, Secret>()
  for (const [column, text] of Object.entries(sealed)) {
    const secret = await sealer.open(organizationId, { table: 'node', row: id, column }, text)
    opened.set(column, new Secret(rename(secret.reveal())))
  }
  return opened
}

/** The source's configuration as the body of a create. */
const bodyOf = (
  { definition, resource }: Service,
  source: CopySource,
  opened: Map<string, Secret>,
  rename: Rename,
): Spec => {
  // Outputs that the source gave its neighbors come from its own run: the copy has not run.
  const { built_in: _, ...kept } = source.spec
  let spec = JSON.parse(rename(JSON.stringify(kept))) as Spec
  for (const path of secretPaths(resource.spec)) {
    const secret = opened.get(path)
    if (secret !== undefined) spec = putAt(spec, path.split('.'), secret.reveal())
  }
  return withoutPublishedPorts(definition.withSecrets?.(spec, opened) ?? spec)
}

/** Restrictions have ids, which belong to one service. */
const renewRestrictions = (spec: Spec): Spec => {
  const kept = spec.deployment_restrictions as Spec[] | undefined
  return kept === undefined ? spec : { ...spec, deployment_restrictions: kept.map((one) => ({ ...one, id: newId() })) }
}

/** The branch's head as it was read for the source: shown until it has been read for the copy. */
const saveHead = (path: GitPath | undefined, source: CopySource, spec: Spec): Spec => {
  const head = path === undefined ? undefined : readAt(source.spec, [...path, 'head_commit_id'])
  if (head === undefined || typeof readAt(spec, path!) !== 'object') return spec
  return putAt(spec, [...path!, 'head_commit_id'], head)
}

interface CopyTarget {
  id: string
  name: string
  parent: Node
}

const changeOf = (db: Queryable, { id, parent }: Pick<Copy, 'id' | 'parent'>): Change => ({
  db,
  id,
  parent,
  previous: null,
})

/** Checks and completes a copy as a create of its kind would. */
export const prepareCopy = async (
  tx: Queryable,
  context: Context,
  service: Service,
  source: CopySource,
  wanted: CopyTarget,
  rename: Rename,
): Promise<Copy> => {
  const { sealer } = context.parts
  const { resource, definition } = service
  const opened = await openAll(sealer, context.principal.organizationId, source, rename)
  const body = { ...bodyOf(service, source, opened, rename), name: wanted.name }
  // The request did not send the source's values.
  const silent = { ...context, onlyRecorded: () => {} }
  const completed = (await resource.validate?.(body, silent, changeOf(tx, wanted))) ?? body
  const spec = saveHead(definition.git, source, renewRestrictions(completed))
  const { open, sealed } = await sealAll(context, wanted.id, secretPaths(resource.spec), spec)
  return { service, ...wanted, spec: open, sealed }
}

/** Writes only the rows, so that others can refer to them. */
export const insertCopy = async (tx: Queryable, context: Context, copy: Copy): Promise<void> => {
  const { organizationId, tokenId } = context.principal
  const { name: _, ...spec } = copy.spec
  await tx
    .query(
      `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec, sealed, updated_by)
       values ($1, $2, $3, $4, 'service', $5, $6, $7, $8)`,
      [
        copy.id,
        organizationId,
        copy.service.resource.kind,
        copy.parent.id,
        copy.name,
        JSON.stringify(spec),
        JSON.stringify(copy.sealed),
        tokenId,
      ],
    )
    .catch((error: unknown) => {
      throw translateWrite(error)
    })
}

/** Writes what belongs to a copy besides its row: its state, its host names, and what its kind adds. */
export const finishCopy = async (tx: Queryable, context: Context, copy: Copy): Promise<void> => {
  await copy.service.resource.written!(tx, { ...copy.spec, name: copy.name }, context, changeOf(tx, copy))
}
