/** Questions about a chart before a service is created from it: whether it exists, and its default values. */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation } from '../../api/operations/operation.ts'
import { checkRefs, type Spec } from '../../api/operations/resource.ts'
import { defaultValuesOf, fetchChart } from '../../deployments/charts/make-chart.ts'
import { readGitCredentials } from '../../deployments/credentials/git-credentials.ts'
import type { DeploymentParts } from '../../deployments/parts.ts'
import { GitRepositoryToRead } from '../service/git-source.ts'
import { administers, refuseTokensElsewhere } from '../service/token-reach.ts'
import { completeSource, SourceRequest } from './chart.ts'
import { askingRepository } from './charts.ts'
import { chartIn } from './run.ts'

const fetchAsked = async ({ parts, db, principal }: Context, source: Spec) => {
  await refuseTokensElsewhere(db, principal, source)
  const { database, sealer, outbound, builder } = parts
  const gitCredentials: DeploymentParts['gitCredentials'] = (use) =>
    readGitCredentials(database, sealer, { ...use, isApproved: administers(principal) })
  return askingRepository((signal) =>
    fetchChart(
      {
        parts: { database, sealer, outbound, builder, gitCredentials },
        organizationId: principal.organizationId,
        signal,
        say: () => {},
      },
      chartIn(completeSource(source, undefined)),
    ),
  )
}

const asks = {
  method: 'POST' as const,
  // It logs in to the repository, like the service that will use it.
  scope: 'Write' as const,
  area: 'projects' as const,
  owner: nodeInPath('environment', 'environmentId'),
}

const valuesBody = Type.Object({ source: SourceRequest() })

const readDefaultValues = operation({
  ...asks,
  id: 'createHelmDefaultValues',
  path: '/environment/{environmentId}/helmDefaultValues',
  tag: 'Helms',
  summary: 'Read the values that a chart has by itself: its values.yaml',
  body: valuesBody,
  status: 201,
  produces: 'text/plain',
  async run(context) {
    const { body, db, principal } = context
    await checkRefs(db, valuesBody, body, principal.organizationId)
    return defaultValuesOf(await fetchAsked(context as Context, body.source as Spec))
  },
})

const checkBody = Type.Object({ git_repository: GitRepositoryToRead() })

const checkChart = operation({
  ...asks,
  id: 'checkHelmRepository',
  path: '/environment/{environmentId}/checkHelmRepository',
  tag: 'Environment',
  summary: 'Check that the root path of a git repository has a chart that can be installed',
  body: checkBody,
  status: 200,
  answer: Type.Object({}),
  async run(context) {
    const { body, db, principal } = context
    await checkRefs(db, checkBody, body, principal.organizationId)
    await fetchAsked(context as Context, { git_repository: body.git_repository })
    return {}
  },
})

export const chartSourceOperations: Operation[] = [readDefaultValues, checkChart]
