/** Templates of lifecycle jobs: this server has none, and answers so in the form that clients know. */
import Type from 'typebox'
import { nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { Open, Results, Text } from '../../api/operations/schema.ts'
import { notFound } from '../../lib/errors.ts'

const path = '/environment/{environmentId}/lifecycleTemplate'
const common = {
  ...reading,
  tag: 'Lifecycle Template Main Calls',
  area: 'projects' as const,
  owner: nodeInPath('environment', 'environmentId'),
}

export const lifecycleTemplateOperations: Operation[] = [
  operation({
    ...common,
    id: 'listEnvironmentLifecycleTemplates',
    path,
    summary: 'List the templates of lifecycle jobs: always empty, because this server has none',
    answer: Results(Type.Object({ id: Text(), name: Text(), description: Text() })),
    run: async () => ({ results: [] }),
  }),
  operation({
    ...common,
    id: 'getEnvironmentLifecycleTemplate',
    path: `${path}/{lifecycleTemplateId}`,
    summary: 'Read a template of lifecycle jobs: always 404, because this server has none',
    answer: Open(),
    run: async () => {
      throw notFound()
    },
  }),
]
