/** The charts of a repository, as its index lists them; of a registry (OCI), the versions of one chart by name. */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation } from '../../api/operations/operation.ts'
import { Maybe, Results, Text } from '../../api/operations/schema.ts'
import { createRegistryClient, RegistryError } from '../../lib/docker/docker-registry.ts'
import { badRequest, notFound } from '../../lib/errors.ts'
import { OutboundFailed, OutboundRefused } from '../../lib/net/outbound.ts'
import { Secret } from '../../lib/secret.ts'
import { ChartIndexTooLarge, type ChartVersions, parseChartIndex } from './chart-index.ts'

const patienceMs = 30_000
/** Large public repositories have indexes of 20 MB. */
const maxIndexBytes = 32 << 20

interface Repository {
  kind: string
  url: string
  username: string
  password: Secret
}

const read = async ({ parts, node, principal }: Context): Promise<Repository> => {
  const [row] = await parts.database.query<{
    kind: string
    url: string
    username: string | null
    sealed: string | null
  }>(
    `select spec ->> 'kind' as kind, coalesce(spec ->> 'url', '') as url, spec #>> '{config,username}' as username,
       sealed ->> 'config.password' as sealed from node where id = $1 and kind = 'helm_repository'`,
    [node.id],
  )
  if (row === undefined) throw notFound()
  const place = { table: 'node', row: node.id, column: 'config.password' }
  const password =
    row.sealed === null ? new Secret('') : await parts.sealer.open(principal.organizationId, place, row.sealed)
  return { kind: row.kind, url: row.url, username: row.username ?? '', password }
}

const unreachable = (why: string) =>
  badRequest(`The repository cannot be reached: ${why}.`, undefined, 'repository_unreachable')

const tooLarge = (how: string) =>
  badRequest(`The index of this repository ${how}: use a smaller repository.`, undefined, 'repository_too_large')

const readIndex = async ({ parts }: Context, repository: Repository): Promise<ChartVersions[]> => {
  const { url, username, password } = repository
  const login = Buffer.from(`${username}:${password.reveal()}`).toString('base64')
  const answer = await parts.outbound.request({
    method: 'GET',
    url: `${url.replace(/\/+$/, '')}/index.yaml`,
    headers: {
      accept: 'application/yaml, text/yaml, */*',
      ...(username === '' ? {} : { authorization: `Basic ${login}` }),
    },
    totalTimeoutMs: patienceMs,
    maxResponseBytes: maxIndexBytes,
  })
  if (answer.status === 401 || answer.status === 403)
    throw badRequest(
      'The repository refused the login: check its user name and password.',
      undefined,
      'repository_denied',
    )
  if (answer.status !== 200)
    throw badRequest(
      `The repository answered its index with status ${answer.status}: check its URL, which must be the folder of index.yaml.`,
      undefined,
      'repository_answer',
    )
  if (answer.truncated) throw tooLarge('is larger than 32 MiB')
  const charts = parseChartIndex(answer.body)
  if (charts === null)
    throw badRequest('The repository has no index of charts at index.yaml.', undefined, 'repository_answer')
  return charts
}

const readTags = async ({ parts }: Context, repository: Repository, chart: string): Promise<ChartVersions[]> => {
  const { url, username, password } = repository
  const { pathname } = new URL(url.replace(/^oci:/, 'https:'))
  const access = { url: url.replace(/^oci:/, 'https:'), username: username === '' ? null : username, password }
  const client = createRegistryClient(parts.outbound, access, AbortSignal.timeout(patienceMs))
  const name = [...pathname.split('/'), chart].filter((each) => each !== '').join('/')
  return [{ chart_name: chart, versions: await client.tags(name) }]
}

const list = async (context: Context, repository: Repository, chart: string | undefined): Promise<ChartVersions[]> => {
  if (repository.kind === 'HTTPS') {
    const charts = await readIndex(context, repository)
    return chart === undefined ? charts : charts.filter(({ chart_name: name }) => name === chart)
  }
  if (chart === undefined)
    throw badRequest(
      'A registry (OCI) does not list its charts: send `chartName` to read the versions of one.',
      undefined,
      'chart_name_needed',
    )
  return readTags(context, repository, chart)
}

export const listCharts: Operation = operation({
  id: 'getHelmCharts',
  method: 'GET',
  path: '/organization/{organizationId}/helmRepository/{helmRepositoryId}/charts',
  tag: 'Helm Repositories',
  summary:
    'List the charts of a repository with their versions, from its index; of a registry (OCI), the versions of the chart that `chartName` names',
  // It logs in with the repository's password.
  reads: 'sensitive',
  scope: 'Read',
  area: 'resources',
  owner: nodeInPath('helm_repository', 'helmRepositoryId', 'organizationId'),
  query: Type.Object({ chartName: Maybe(Text(255, { pattern: '^[A-Za-z0-9][A-Za-z0-9._/-]*$' })) }),
  status: 200,
  answer: Results(Type.Object({ chart_name: Text(), versions: Type.Array(Text()) })),
  async run(context) {
    const untyped = context as Context
    const repository = await read(untyped)
    try {
      return { results: await list(untyped, repository, context.query.chartName) }
    } catch (error) {
      if (error instanceof ChartIndexTooLarge) throw tooLarge(error.message)
      if (error instanceof RegistryError) throw badRequest(error.message, undefined, `registry_${error.code}`)
      if (error instanceof OutboundRefused || error instanceof OutboundFailed) throw unreachable(error.message)
      throw error
    }
  },
})
