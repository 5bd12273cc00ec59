/** Operations across kinds: all services of an environment. */
import Type, { type TSchema } from 'typebox'
import { nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import type { Spec } from '../../api/operations/resource.ts'
import { Results } from '../../api/operations/schema.ts'
import type { Kind } from '../../kinds.ts'
import type { Service } from '../service/service.ts'

const inOrder = (a: Spec, b: Spec): number =>
  String(a.created_at).localeCompare(String(b.created_at)) || String(a.id).localeCompare(String(b.id))

/** Every service of an environment with its full record, oldest first. */
export const listServicesOf = (services: readonly Service[]): Operation => {
  const anyService: TSchema = Type.Union(services.map(({ answer }) => answer))
  return operation({
    id: 'listServicesByEnvironmentId',
    ...reading,
    path: '/environment/{environmentId}/services',
    tag: 'Environment Main Calls',
    summary: 'List all services of an environment',
    area: 'projects',
    owner: nodeInPath('environment', 'environmentId'),
    answer: Results(anyService),
    async run({ db, node }) {
      const kinds = await db.query<{ kind: Kind }>(
        `select distinct kind from service_state where environment_id = $1`,
        [node.id],
      )
      const present = services.filter(({ deployable }) => kinds.some(({ kind }) => kind === deployable.kind))
      const records = await Promise.all(present.map((service) => service.readAll(db, node.id)))
      return { results: records.flat().sort(inOrder) }
    },
  })
}
