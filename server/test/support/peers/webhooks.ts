import { once } from 'node:events'
import { mkdtempSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, type TestContext } from 'node:test'
import { newId } from '../../../src/lib/ids.ts'
import { createLog } from '../../../src/lib/log.ts'
import { createOutbound } from '../../../src/lib/net/outbound.ts'
import { systemClock } from '../../../src/lib/time/clock.ts'
import { createSealer } from '../../../src/store/keys/seal.ts'
import { createDelivery, type DeliveryParts } from '../../../src/webhooks/deliver.ts'
import { enqueueDeploymentEvent } from '../../../src/webhooks/outbox.ts'
import { createSigningSecret } from '../../../src/webhooks/sign.ts'
import type { DeploymentEvent } from '../../../src/webhooks/webhooks.ts'
import { createWorkRegistry } from '../../../src/work/registry.ts'
import { testDatabase } from '../database.ts'
import { until } from '../until.ts'

const folder = mkdtempSync(join(tmpdir(), 'slipway-webhooks-'))
after(() => rm(folder, { recursive: true, force: true }))
export const database = await testDatabase()
export const sealer = await createSealer({ database, masterKeyFile: join(folder, 'master') })
export const outbound = createOutbound({ allow: ['loopback'] })

export interface Seen {
  id: string
  body: { event_type: string; payload: Record<string, string>; text?: string }
  raw: string
  headers: Record<string, string>
}

type Handler = (request: Seen, response: ServerResponse) => void

const read = async (request: IncomingMessage): Promise<Seen> => {
  let raw = ''
  for await (const chunk of request) raw += chunk
  return {
    id: String(request.headers['webhook-id']),
    body: JSON.parse(raw),
    raw,
    headers: request.headers as Record<string, string>,
  }
}

/** A receiver that remembers what it got before it answers. */
export const receive = async (t: TestContext, handler: Handler = (_, response) => response.end()) => {
  const seen: Seen[] = []
  const server = createServer(async (request, response) => {
    const one = await read(request)
    seen.push(one)
    handler(one, response)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return { seen, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook` }
}

export const start = async (t: TestContext, more: Partial<DeliveryParts> = {}) => {
  const log = createLog('silent')
  const delivery = createDelivery({
    database,
    sealer,
    outbound,
    clock: systemClock,
    log,
    work: createWorkRegistry(systemClock),
    scheduleSeconds: [0, 0.05, 0.05],
    ...more,
  })
  await delivery.start()
  t.after(() => delivery.stop())
  return delivery
}

const insertNode = (
  id: string,
  organization: string,
  kind: string,
  more: { parent?: string; name?: string; spec?: object; sealed?: object } = {},
) =>
  database.query(
    `insert into node (id, organization_id, kind, name_scope, parent_id, name, spec, sealed) values ($1, $2, $3, $3, $4, $5, $6, $7)`,
    [id, organization, kind, more.parent ?? null, more.name ?? null, more.spec ?? {}, more.sealed ?? {}],
  )

/** An organization with a project of its own. */
export const createOwner = async () => {
  const [organization, project] = [newId(), newId()]
  await insertNode(organization, organization, 'organization')
  await insertNode(project, organization, 'project', { parent: organization, name: 'Shop_1' })
  return { organization, project }
}
export type Owner = Awaited<ReturnType<typeof createOwner>>

export const createWebhook = async (owner: Owner, url: string, spec: object = {}, targetSecret?: string) => {
  const [id, secret] = [newId(), createSigningSecret()]
  const seal = (column: string, text: string) =>
    sealer.seal(owner.organization, { table: 'node', row: id, column }, text)
  const sealed: Record<string, string> = { signing_secret: await seal('signing_secret', secret) }
  if (targetSecret !== undefined) sealed.target_secret = await seal('target_secret', targetSecret)
  const whole = { kind: 'STANDARD', enabled: true, events: ['DEPLOYMENT_STARTED'], target_url: url, ...spec }
  await insertNode(id, owner.organization, 'webhook', { parent: owner.organization, spec: whole, sealed })
  return { id, secret }
}

export const event = (owner: Owner, more: Partial<DeploymentEvent> = {}): DeploymentEvent => ({
  kind: 'DEPLOYMENT_STARTED',
  organizationId: owner.organization,
  projectId: owner.project,
  environmentId: newId(),
  environmentMode: 'STAGING',
  serviceId: newId(),
  serviceType: 'APPLICATION',
  serviceName: 'api',
  deploymentId: newId(),
  executionId: 'e-1',
  state: 'DEPLOYMENT_QUEUED',
  reason: null,
  ...more,
})

export const happen = async (one: DeploymentEvent): Promise<DeploymentEvent> => {
  await database.transaction((tx) => enqueueDeploymentEvent(tx, one))
  return one
}
export const outboxOf = (webhookId: string) =>
  database.query<{ id: string; state: string; attempts: number; event_type: string; body: string }>(
    'select id, state, attempts, event_type, body from outbox where webhook_id = $1 order by seq',
    [webhookId],
  )
export const settledAs = (webhookId: string, state: string, count = 1) =>
  until(async () => (await outboxOf(webhookId)).filter((row) => row.state === state).length === count, {
    what: `${count} ${state}`,
  })
export const logOf = (webhookId: string) =>
  database.query<{
    attempt: number
    response_status: number
    response_body: string | null
    error: string | null
    request: Seen
  }>('select * from delivery where webhook_id = $1 order by created_at, attempt', [webhookId])
