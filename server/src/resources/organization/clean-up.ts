/** What an organization no longer keeps: listed, or removed at once. */
import Type from 'typebox'
import { operation, organizationInPath } from '../../api/operations/operation.ts'
import { auditOf, placeOf } from '../../api/operations/resource.ts'
import { Flag, List, Maybe, Nullable, OneOf, Text, Uuid, Whole } from '../../api/operations/schema.ts'
import { cleanUp, cleanUpKinds, type Removed } from '../../deployments/keeping/clean-up.ts'
import { DeploymentError, unavailable } from '../../lib/errors.ts'
import { writeAudit } from '../../store/tree.ts'

/** Items of one answer; the sums are of all. */
const most = 1000
const deadlineMs = 60_000
const slow = 'The clean-up takes longer than a minute: Slipway continues with it by itself, or ask again.'

const Bytes = () => Type.Number({ minimum: 0 })

const Item = Type.Object(
  {
    kind: OneOf(cleanUpKinds),
    name: Text(1024, { description: 'The id of a release, or the name or id of an image on its engine.' }),
    service_id: Nullable(Uuid()),
    environment_id: Nullable(Uuid()),
    reason: Text(500, { description: 'Why it is no longer kept.' }),
    bytes: Type.Number({ minimum: 0, description: 'What nothing else needs; 0 if others share all of it.' }),
  },
  { title: 'CleanUpItem' },
)

const Answer = Type.Object(
  {
    dry_run: Flag(),
    count: Whole(0),
    bytes: Bytes(),
    results: List(Item, most, { description: 'The largest ones first, at most 1000.' }),
  },
  { title: 'CleanUp' },
)

const viewOf = ({ serviceId, environmentId, bytes, ...rest }: Removed) => ({
  ...rest,
  service_id: serviceId,
  environment_id: environmentId,
  bytes: Math.round(bytes),
})

export const organizationCleanUp = operation({
  id: 'cleanUpOrganization',
  method: 'POST',
  path: '/organization/{organizationId}/cleanUp',
  tag: 'Organization Main Calls',
  summary: 'Remove the releases, deployments, images and layers of an organization that are no longer kept',
  scope: 'Admin',
  area: 'settings',
  owner: organizationInPath,
  query: Type.Object({
    dry_run: Maybe(Flag({ description: 'List what would be removed, and why, without removing it.' })),
  }),
  status: 200,
  answer: Answer,
  async run(context) {
    const { parts, node, query } = context
    const isDryRun = query.dry_run === true
    const keeping = parts.settings.keeping
    const what = { organizationId: node.id, isDryRun }
    const signal = AbortSignal.timeout(deadlineMs)
    const removed = await cleanUp({ ...parts, keeping }, what, signal).catch((error: unknown) => {
      if (signal.aborted) throw unavailable('clean_up_slow', slow, 60, error)
      throw error instanceof DeploymentError ? unavailable(error.code, error.message, 30, error) : error
    })
    const bytes = Math.round(removed.reduce((sum, item) => sum + item.bytes, 0))
    const change = { cleaned_up: { count: removed.length, bytes } }
    if (!isDryRun)
      await context.transaction((tx) =>
        writeAudit(tx, node.id, node, auditOf(context, 'UPDATE', { target: 'ORGANIZATION' }, placeOf(node), change)),
      )
    const results = removed
      .sort((a, b) => b.bytes - a.bytes)
      .slice(0, most)
      .map(viewOf)
    return { dry_run: isDryRun, count: removed.length, bytes, results }
  },
})
