/** Cases of webhooks and their deliveries. */
import { newId } from '../../src/lib/ids.ts'
import type { Cases, Scene, Values } from './case.ts'

const webhookBody = { target_url: 'http://127.0.0.1:9/hook', events: ['DEPLOYMENT_STARTED'] }

const withDelivery = async (values: Values, { api }: Scene): Promise<void> => {
  const [outbox, delivery] = [newId(), newId()]
  await api.database.query(
    `insert into outbox (id, organization_id, webhook_id, ordering_key, event_type, body)
     values ($1, $2, $3, $3, 'DEPLOYMENT_STARTED', '{}')`,
    [outbox, api.organizationId, values.webhookId],
  )
  await api.database.query(
    `insert into delivery (id, outbox_id, webhook_id, attempt, event_type, target_url, request, response_status, duration_ms)
     values ($1, $2, $3, 1, 'DEPLOYMENT_STARTED', 'http://127.0.0.1:9/hook', '{}', 200, 1)`,
    [delivery, outbox, values.webhookId],
  )
  values.webhookEventId = delivery
}

export const webhookCases: Cases = {
  makers: {
    webhookId: async (_, { api, post }) => (await post(`/organization/${api.organizationId}/webhook`, webhookBody)).id,
    webhookEventId: async () => newId(),
    gitWebhookId: async (_, { api, post }) => (await post(`/organization/${api.organizationId}/gitWebhook`, {})).id,
  },
  cases: {
    editOrganizationWebhook: { body: () => ({ enabled: false }) },
    createOrganizationWebhook: { body: () => webhookBody },
    createGitWebhook: { body: () => ({ description: 'ours' }) },
    syncServiceGitWebhook: { refused: 400 },
    listWebhookEvent: { before: withDelivery },
    resendWebhookEvent: { before: withDelivery, refused: 409 },
  },
}
