/**
 * Webhooks of git hosts: an address that a host calls after a push, and the secret that signs its calls
 * (api/git-webhooks.ts receives them). The secret is generated here, answered once, at creation and at each rotation.
 */
import Type from 'typebox'
import { gitWebhookPath } from '../../api/git-webhooks.ts'
import {
  type Context,
  creating,
  nodeInPath,
  type Operation,
  operation,
  organizationInPath,
} from '../../api/operations/operation.ts'
import { auditOf, checkRefs, resource, type Spec } from '../../api/operations/resource.ts'
import { Computed, Maybe, Nullable, Ref, ShownOnce, Text, Timestamp } from '../../api/operations/schema.ts'
import { conflict, notFound } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { insertNode, insertSql, lockNode, timestampSql, updateNode, updateSql } from '../../store/tree.ts'
import { graceHours } from '../../webhooks/inbound/deliveries.ts'
import { addressToken } from '../../webhooks/inbound/registries.ts'
import { createSigningSecret } from '../../webhooks/sign.ts'

const kind = 'git_webhook'
const collection = '/organization/{organizationId}/gitWebhook'
const item = `${collection}/{gitWebhookId}`
const tag = 'Organization Git Webhook'
const auditTarget = { target: 'WEBHOOK' }
const nowhere = { projectId: null, environmentId: null }

const spec = Type.Object({
  description: Maybe(Nullable(Text(2048))),
  git_token_id: Maybe(
    Nullable(Ref('git_token'), {
      description: 'The webhook is only for repositories that services read with this token; without it, for all.',
    }),
  ),
})

/** The operator's public address, else the one that the caller used, which a git host may reach too. */
const addressOf = ({ parts, scheme, headers }: Context, id: unknown): string =>
  `${parts.settings.publicUrl ?? `${scheme}//${String(headers.host ?? '127.0.0.1')}`}${gitWebhookPath}/${String(id)}`

/** For registries that neither sign nor send a header. */
const addressWith = (context: Context, id: unknown, secret: string): string =>
  `${addressOf(context, id)}/${addressToken(secret)}`

const viewFor = (record: Spec, context?: Context): Spec => ({
  ...record,
  ...(context === undefined ? {} : { url: addressOf(context, record.id) }),
})

const gitWebhook = resource({
  kind,
  area: 'webhooks',
  parent: { kind: 'organization', param: 'organizationId' },
  tag,
  words: ['a git webhook', 'git webhooks'],
  collection,
  item,
  param: 'gitWebhookId',
  ids: { list: 'listGitWebhooks', read: 'getGitWebhook', remove: 'deleteGitWebhook' },
  spec,
  record: {
    url: Computed(Text(2048, { description: 'The URL to enter at the git host; content type `application/json`.' })),
    rotated_at: Computed(Nullable(Timestamp())),
    last_delivery_at: Computed(
      Nullable(Timestamp(), { description: 'The last delivery that was accepted in the last seven days.' }),
    ),
  },
  columns: {
    rotated_at: `n.spec -> 'rotated_at'`,
    last_delivery_at: `(select ${timestampSql('max(d.received_at)')} from git_delivery d where d.webhook_id = n.id)`,
  },
  view: viewFor,
  audit: auditTarget,
})

const insert = insertSql(kind, kind, gitWebhook.recordText)
const update = updateSql(gitWebhook.recordText)

/** The webhook for repositories read with a git token, and its secret: created if missing. */
export const ensureGitWebhook = async (
  context: Context,
  gitTokenId: string,
): Promise<{ id: string; secret: string }> => {
  const { principal, parts, db } = context
  const { organizationId, tokenId } = principal
  await parts.sealer.prepare(organizationId)
  // Not the transaction of the request, whose result would be stored as its answer: this one is a secret.
  return db.transaction(async (tx) => {
    // Of two at once, the second finds the row of the first.
    await tx.query('select 1 from node where id = $1 for no key update', [gitTokenId])
    const [row] = await tx.query<{ id: string; sealed: string }>(
      `select id, sealed ->> 'signing_secret' as sealed from node where organization_id = $1 and kind = '${kind}'
         and spec ->> 'git_token_id' = $2 order by created_at, id limit 1`,
      [organizationId, gitTokenId],
    )
    if (row !== undefined) {
      const place = { table: 'node', row: row.id, column: 'signing_secret' }
      return { id: row.id, secret: (await parts.sealer.open(organizationId, place, row.sealed)).reveal() }
    }
    const [id, secret] = [newId(), createSigningSecret()]
    const sealed = { signing_secret: await seal(context, id, 'signing_secret', secret) }
    const body = { git_token_id: gitTokenId }
    const made = { id, organizationId, parentId: organizationId, name: id, spec: body, sealed, updatedBy: tokenId }
    await insertNode(tx, insert, made, auditOf(context, 'CREATE', auditTarget, nowhere, body))
    return { id, secret }
  })
}

const seal = ({ parts, principal }: Context, id: string, column: string, text: string): Promise<string> =>
  parts.sealer.seal(principal.organizationId, { table: 'node', row: id, column }, text)

const Shown = Type.Object({
  ...gitWebhook.answer.properties,
  signing_secret: ShownOnce(255, {
    description:
      'The secret to enter at the git host, and at a registry as the header `Authorization`; shown only in this response.',
  }),
  secret_url: ShownOnce(2048, {
    description:
      'The URL to enter at Docker Hub, which sends no secret: it is in this address; shown only in this response.',
  }),
})

const create = operation({
  id: 'createGitWebhook',
  ...creating,
  path: collection,
  tag,
  summary: 'Create a webhook that a git host calls after a push; its secret is only in this response',
  area: 'webhooks',
  owner: organizationInPath,
  body: spec,
  bodyOptional: true,
  defaults: true,
  answer: Shown,
  async run(context) {
    const { body, db, principal } = context
    await checkRefs(db, spec, body, principal.organizationId)
    const [id, signing_secret] = [newId(), createSigningSecret()]
    const sealed = { signing_secret: await seal(context, id, 'signing_secret', signing_secret) }
    const { organizationId, tokenId } = principal
    const row = { id, organizationId, parentId: organizationId, name: id, spec: body, sealed, updatedBy: tokenId }
    return context.write(async (tx) => {
      const text = await insertNode(tx, insert, row, auditOf(context, 'CREATE', auditTarget, nowhere, body))
      return {
        ...viewFor(JSON.parse(text) as Spec, context),
        signing_secret,
        secret_url: addressWith(context, id, signing_secret),
      }
    })
  },
})

const readSealed = async (db: Queryable, id: string): Promise<string> => {
  const [row] = await db.query<{ sealed: string | null }>(
    `select sealed ->> 'signing_secret' as sealed from node where id = $1`,
    [id],
  )
  if (row === undefined || row.sealed === null) throw notFound()
  return row.sealed
}

const rotate = operation({
  id: 'rotateGitWebhookSecret',
  method: 'POST',
  path: `${item}/rotate`,
  tag,
  summary: `Give a git webhook a new secret, which is only in this response; the one before is accepted for ${graceHours} hours, unless it is rotated again`,
  scope: 'Write',
  area: 'webhooks',
  owner: nodeInPath(kind, 'gitWebhookId', 'organizationId'),
  status: 200,
  answer: Shown,
  async run(context) {
    const { db, node, parts, principal } = context
    const known = await readSealed(db, node.id)
    const place = { table: 'node', row: node.id, column: 'signing_secret' }
    const before = (await parts.sealer.open(principal.organizationId, place, known)).reveal()
    const signing_secret = createSigningSecret()
    const sealed = {
      signing_secret: await seal(context, node.id, 'signing_secret', signing_secret),
      previous_secret: await seal(context, node.id, 'previous_secret', before),
    }
    return context.transaction(async (tx) => {
      const kept = await lockNode(tx, node.id)
      if (kept === null) throw notFound()
      if (kept.sealed.signing_secret !== known)
        throw conflict('rotated_meanwhile', 'The secret was rotated by another request at the same time: try again.')
      const change = { rotated_at: parts.clock.now().toISOString() }
      const content = { name: kept.name, spec: { ...kept.spec, ...change }, sealed }
      const audit = auditOf(context, 'UPDATE', auditTarget, nowhere, change)
      const text = await updateNode(tx, update, node.id, content, principal.tokenId, audit)
      return {
        ...viewFor(JSON.parse(text) as Spec, context),
        signing_secret,
        secret_url: addressWith(context, node.id, signing_secret),
      }
    })
  },
})

export const gitWebhookOperations: Operation[] = [...gitWebhook.operations, create, rotate]
