/** The charts of a repository, as its index lists them; of a registry (OCI), the versions of one chart by name. */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { Maybe, Results, Text } from '../../api/operations/schema.ts'
import { createChartRepositoryClient, readChartRepository } from '../../deployments/charts/repositories.ts'
import { badRequest, DeploymentError, notFound } from '../../lib/errors.ts'

const patienceMs = 30_000

/** A repository's own failures are the caller's business. */
export const askingRepository = async <T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> => {
  try {
    return await work(AbortSignal.timeout(patienceMs))
  } catch (error) {
    if (error instanceof DeploymentError) throw badRequest(error.message, undefined, error.code)
    throw error
  }
}

export const listCharts: Operation = operation({
  id: 'getHelmCharts',
  ...reading,
  path: '/organization/{organizationId}/helmRepository/{helmRepositoryId}/charts',
  tag: 'Helm Repositories',
  summary:
    'List the charts of a repository with their versions, from its index; of a registry (OCI), the versions of the chart that `chartName` names',
  // It logs in with the repository's password.
  reads: 'sensitive',
  area: 'resources',
  owner: nodeInPath('helm_repository', 'helmRepositoryId', 'organizationId'),
  query: Type.Object({ chartName: Maybe(Text(255, { pattern: '^[A-Za-z0-9][A-Za-z0-9._/-]*$' })) }),
  answer: Results(Type.Object({ chart_name: Text(), versions: Type.Array(Text()) })),
  async run(context) {
    const { parts, node, principal } = context as Context
    const results = await askingRepository(async (signal) => {
      const repository = await readChartRepository(parts.database, parts.sealer, principal.organizationId, node.id)
      if (repository === null) throw notFound()
      return createChartRepositoryClient(parts.outbound, repository, signal).list(context.query.chartName)
    })
    return { results }
  },
})
