/**
 * Webhooks: receivers of deployment events. Each is answered and called with the event names it was registered with,
 * except that typed clients always read the public API's names.
 * Its signing secret is generated here and answered once, at creation.
 */
import Type from 'typebox'
import { modes } from '../../api/auth/permissions.ts'
import {
  type Context,
  creating,
  JsonText,
  nodeInPath,
  type Operation,
  operation,
  organizationInPath,
  reading,
} from '../../api/operations/operation.ts'
import { auditOf, type Change, resource, type Spec } from '../../api/operations/resource.ts'
import {
  Computed,
  Flag,
  List,
  Maybe,
  Nullable,
  OneOf,
  Results,
  Secret,
  ShownOnce,
  Text,
  Timestamp,
  Uuid,
  Whole,
} from '../../api/operations/schema.ts'
import { isTypedClient } from '../../api/typed-clients.ts'
import { conflict, invalidField, notFound } from '../../lib/errors.ts'
import { isUuid, newId } from '../../lib/ids.ts'
import { OutboundRefused } from '../../lib/net/outbound.ts'
import { insertNode, insertSql, timestampSql } from '../../store/tree.ts'
import { publicEvent, webhookEvents } from '../../webhooks/outbox.ts'
import { createSigningSecret } from '../../webhooks/sign.ts'

const kinds = ['STANDARD', 'SLACK']
const auditTarget = { target: 'WEBHOOK' }
const collection = '/organization/{organizationId}/webhook'
const item = `${collection}/{webhookId}`
const tag = 'Organization Webhook'
const nowhere = { projectId: null, environmentId: null }

const spec = Type.Object({
  kind: Maybe(OneOf(kinds, { default: 'STANDARD' })),
  target_url: Text(2048, { minLength: 1 }),
  target_secret: Maybe(Secret(4096)),
  description: Maybe(Nullable(Text(2048))),
  enabled: Maybe(Flag({ default: true })),
  events: List(OneOf(webhookEvents), 20, { minItems: 1 }),
  project_names_filter: Maybe(Nullable(List(Text(255), 100))),
  environment_types_filter: Maybe(Nullable(List(OneOf(modes), 10))),
})

const checkTarget = async ({ parts }: Context, url: string): Promise<void> => {
  try {
    await parts.outbound.checkTarget(url)
  } catch (error) {
    if (error instanceof OutboundRefused) throw invalidField('/target_url', error.message)
    throw error
  }
}

/** Typed clients send back the public names that they were shown: an event keeps the name it was registered with. */
const keptWords = (sent: readonly string[], { headers }: Context, registered: readonly string[]): string[] => {
  if (!isTypedClient(headers)) return [...sent]
  const ownWords = (word: string): string[] => registered.filter((own) => publicEvent(own) === word)
  return sent.flatMap((word) => (ownWords(word).length > 0 ? ownWords(word) : [word]))
}

/** The URL is checked when it is set, not when something else about the webhook changes. */
const validate = async (sent: Spec, context: Context, { previous }: Change): Promise<Spec> => {
  if (previous?.spec.target_url !== sent.target_url) await checkTarget(context, String(sent.target_url))
  if (previous === null) return sent
  return { ...sent, events: keptWords(sent.events as string[], context, previous.spec.events as string[]) }
}

const eventsFor = (context: Context | undefined, words: readonly string[]): string[] => {
  context?.setHeader('vary', 'User-Agent')
  if (context === undefined || !isTypedClient(context.headers)) return [...words]
  return [...new Set(words.map(publicEvent))]
}

const viewFor = (record: Spec, context?: Context): Spec => ({
  ...record,
  events: eventsFor(context, record.events as string[]),
})

const webhook = resource({
  kind: 'webhook',
  area: 'webhooks',
  parent: { kind: 'organization', param: 'organizationId' },
  tag,
  words: ['a webhook', 'webhooks'],
  collection,
  item,
  param: 'webhookId',
  ids: {
    list: 'listOrganizationWebHooks',
    read: 'getOrganizationWebhook',
    edit: 'editOrganizationWebhook',
    remove: 'deleteOrganizationWebhook',
  },
  // The URL may itself be a secret: with that of a Slack webhook one can write to the channel.
  reads: 'sensitive',
  spec,
  record: { target_secret_set: Computed(Flag()) },
  columns: { target_secret_set: `(n.sealed ? 'target_secret')` },
  view: viewFor,
  validate,
  audit: auditTarget,
})

const insert = insertSql('webhook', 'webhook', webhook.recordText)

const sealSecrets = async ({ parts, principal }: Context, id: string, secrets: Record<string, unknown>) => {
  const given = Object.entries(secrets).filter((entry): entry is [string, string] => typeof entry[1] === 'string')
  const seal = async ([column, text]: [string, string]) =>
    [column, await parts.sealer.seal(principal.organizationId, { table: 'node', row: id, column }, text)] as const
  return Object.fromEntries(await Promise.all(given.map(seal)))
}

const create = operation({
  id: 'createOrganizationWebhook',
  ...creating,
  path: collection,
  tag,
  summary: 'Create a webhook; the secret that signs its deliveries is only in this response',
  area: 'webhooks',
  owner: organizationInPath,
  body: spec,
  defaults: true,
  answer: Type.Object({ ...webhook.answer.properties, signing_secret: ShownOnce(255) }),
  async run(context) {
    const { target_secret, ...open } = context.body
    await checkTarget(context, open.target_url)
    const [id, signing_secret] = [newId(), createSigningSecret()]
    const sealed = await sealSecrets(context, id, { signing_secret, target_secret })
    const { organizationId, tokenId } = context.principal
    // Webhooks have no names; the id serves as the row's name.
    const row = { id, organizationId, parentId: organizationId, name: id, spec: open, sealed, updatedBy: tokenId }
    return context.write(async (db) => {
      const text = await insertNode(db, insert, row, auditOf(context, 'CREATE', auditTarget, nowhere, open))
      return { ...viewFor(JSON.parse(text) as Spec, context), signing_secret }
    })
  },
})

const eventAnswer = Type.Object({
  id: Uuid(),
  created_at: Timestamp(),
  kind: OneOf(kinds),
  matched_event: OneOf(webhookEvents),
  target_url_used: Text(2048),
  request: Type.Unsafe<Record<string, unknown>>({ type: 'object' }),
  target_response_status_code: Whole(0),
  target_response_body: Nullable(Text()),
  error: Nullable(Text()),
  attempt: Whole(1),
  duration_ms: Whole(0),
  state: Text(),
})

const eventSql = `json_build_object('id', d.id, 'created_at', ${timestampSql('d.created_at')},
  'kind', coalesce(n.spec ->> 'kind', 'STANDARD'), 'matched_event', d.event_type, 'target_url_used', d.target_url,
  'request', d.request, 'target_response_status_code', d.response_status,
  'target_response_body', case when $2 then d.response_body end, 'error', d.error, 'attempt', d.attempt,
  'duration_ms', d.duration_ms, 'state', o.state)`

const owner = nodeInPath('webhook', 'webhookId', 'organizationId')

const listEvents = operation({
  id: 'listWebhookEvent',
  ...reading,
  path: `${item}/event`,
  tag,
  summary: 'List the last 500 delivery attempts, newest first; response bodies are shown to Admin only',
  area: 'webhooks',
  reads: 'sensitive',
  owner,
  answer: Results(eventAnswer),
  async run({ db, node, principal, headers }) {
    const [row] = await db.query<{ text: string }>(
      `select '{"results":' || coalesce(json_agg(record)::text, '[]') || '}' as text from (
         select ${eventSql} as record from delivery d join outbox o on o.id = d.outbox_id join node n on n.id = d.webhook_id
         where d.webhook_id = $1 order by d.created_at desc, d.id desc limit 500) newest`,
      [node.id, principal.scopes.has('Admin')],
    )
    if (!isTypedClient(headers)) return new JsonText(row!.text)
    const { results } = JSON.parse(row!.text) as { results: Type.Static<typeof eventAnswer>[] }
    return { results: results.map((each) => ({ ...each, matched_event: publicEvent(each.matched_event) })) }
  },
})

const resend = operation({
  id: 'resendWebhookEvent',
  method: 'POST',
  path: `${item}/event/{webhookEventId}/resend`,
  tag,
  summary: 'Redeliver an event with the same message id',
  scope: 'Write',
  area: 'webhooks',
  owner,
  status: 202,
  answer: Type.Object({ id: Uuid() }),
  async run({ db, node, params, parts }) {
    const id = params.webhookEventId!
    const [row] = isUuid(id)
      ? await db.query<{ outbox_id: string }>('select outbox_id from delivery where id = $1 and webhook_id = $2', [
          id,
          node.id,
        ])
      : []
    if (row === undefined) throw notFound()
    if (!(await parts.delivery?.deliver(row.outbox_id)))
      throw conflict('delivery_running', 'This event is already being delivered: try again later.')
    return { id: id.toLowerCase() }
  },
})

export const webhookOperations: Operation[] = [...webhook.operations, create, listEvents, resend]
