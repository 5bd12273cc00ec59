/**
 * The chart of a deployment: fetched with its values, in which variables are replaced. It is frozen with the release.
 */
import { createHash } from 'node:crypto'
import type { Commit } from '../../builds/builder.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { ChartContent } from '../../runtimes/charts.ts'
import {
  type ValuesRoom,
  valuesRoom,
  withVariables,
  writeSetValues,
} from '../../runtimes/kubernetes/helm/set-values.ts'
import { openGitSource } from '../credentials/git-source.ts'
import type { BuildSpec, ServiceRequest, Source } from '../deployments.ts'
import type { Made } from '../images/make-image.ts'
import type { DeploymentParts, EffectiveVariables } from '../parts.ts'
import { enter, type ServiceRun } from '../progress/service-run.ts'
import { currentRelease, type Release } from '../release/releases.ts'
import { commitOf } from '../release/version-change.ts'
import { fileOfChart, maxChartBytes, maxChartFiles, packChart, repackChart } from './archive.ts'
import { createChartRepositoryClient, readChartRepository } from './repositories.ts'

type ChartSource = Extract<Source, { from: 'chart' }>
type Variables = Pick<EffectiveVariables, 'env'>
type FetchParts = Pick<DeploymentParts, 'database' | 'sealer' | 'outbound' | 'builder' | 'gitCredentials'>

const minute = 60_000
/** Helm repositories may be slow; their charts are small. */
const fetchDeadlineMs = 9 * minute

/** A chart as it was fetched; `commit` is null for one of a repository of charts. */
export interface FetchedChart {
  /** `shop 1.2.3`, or the folder of a repository. */
  name: string
  archive: Buffer
  commit: Commit | null
}

interface Fetching {
  parts: FetchParts
  organizationId: string
  signal: AbortSignal
  say(sentence: string, level?: 'error'): void
}

const fetchFromRepository = async (
  { parts, organizationId, signal, say }: Fetching,
  { repositoryId, chartName: name, chartVersion: version }: Extract<ChartSource['chart'], { repositoryId: string }>,
): Promise<FetchedChart> => {
  const { database, sealer, outbound } = parts
  const repository = await readChartRepository(database, sealer, organizationId, repositoryId)
  if (repository === null || outbound === undefined)
    throw new DeploymentError(
      'repository_missing',
      'The helm repository of this service has been deleted: choose another one.',
    )
  say(`Fetching chart ${name} ${version} from ${repository.url.host}.`)
  const archive = await createChartRepositoryClient(outbound, repository, signal).fetch(name, version)
  return { name: `${name} ${version}`, archive: await repackChart(archive), commit: null }
}

const fetchCommit = async (
  { parts, organizationId, signal, say }: Fetching,
  git: BuildSpec['git'],
  commitId: string | undefined,
) => {
  const source = await openGitSource(parts, organizationId, git, (warning) => say(warning, 'error'))
  say(`Fetching ${commitId ?? git.branch} from the repository.`)
  const commit = await parts.builder.fetch({ ...source, ...(commitId === undefined ? {} : { commitId }) }, signal)
  say(`Commit ${commit.git_commit_id.slice(0, 12)}: ${commit.message.split('\n')[0]}`)
  return { source: { ...source, commitId: commit.git_commit_id }, commit }
}

const inside = (path: string): string => path.replace(/^\/+|\/+$/g, '')

const fetchFromGit = async (
  fetching: Fetching,
  { git, rootPath }: { git: BuildSpec['git']; rootPath: string },
  commitId: string | undefined,
): Promise<FetchedChart> => {
  const { source, commit } = await fetchCommit(fetching, git, commitId)
  const most = { files: maxChartFiles, bytes: maxChartBytes }
  const files = await fetching.parts.builder.folder(source, inside(rootPath), most, fetching.signal)
  const name = `chart of ${rootPath} at ${commit.git_commit_id.slice(0, 12)}`
  return { name, archive: await packChart(files), commit }
}

/** Rejects with a `DeploymentError`. */
export const fetchChart = (
  fetching: Fetching,
  chart: ChartSource['chart'],
  { commitId, chartVersion }: Pick<ServiceRequest, 'commitId' | 'chartVersion'> = {},
): Promise<FetchedChart> =>
  'git' in chart
    ? fetchFromGit(fetching, chart, commitId)
    : fetchFromRepository(fetching, { ...chart, chartVersion: chartVersion ?? chart.chartVersion })

const readValuesFiles = async (
  fetching: Fetching,
  { git, paths }: NonNullable<ChartSource['valuesFiles']>,
  commitId: string | undefined,
): Promise<string[]> => {
  const { source } = await fetchCommit(fetching, git, commitId)
  const wanted = new Set(paths)
  const found = await fetching.parts.builder.files(source, '', (path) => wanted.has(path), fetching.signal)
  const texts = new Map(found.map(({ path, text }) => [path, text]))
  return paths.map((path) => {
    const text = texts.get(path)
    if (text === undefined)
      throw new DeploymentError('values_missing', `The repository of the values has no file ${path}.`)
    return text
  })
}

const pairsWith = (pairs: ChartSource['set'], { env }: Variables, room: ValuesRoom): ChartSource['set'] =>
  pairs.map(([path, value]) => [path, withVariables(value, env, room)])

/** The values files in their order, and the single values as a last one: with variables replaced. */
const writeValues = (texts: readonly string[], source: ChartSource, variables: Variables): string[] => {
  const room = valuesRoom()
  const files = [...texts, ...source.rawValues].map((text) => withVariables(text, variables.env, room))
  const single = writeSetValues({
    set: pairsWith(source.set, variables, room),
    setString: pairsWith(source.setString, variables, room),
    setJson: pairsWith(source.setJson, variables, room),
  })
  const all = [...files, ...(single === null ? [] : [single])]
  // The paths of single values count too.
  if (all.reduce((sum, text) => sum + text.length, 0) > valuesRoom().chars)
    throw new DeploymentError('values_refused', 'The values of the chart are larger than 1 MiB together.')
  return all
}

/** The complete input for helm. Rejects with a `DeploymentError`. */
export const readChart = async (
  fetching: Fetching,
  source: ChartSource,
  request: Pick<ServiceRequest, 'commitId' | 'chartVersion' | 'valuesCommitId'>,
  readVariables: (commitId: string | undefined) => Promise<Variables>,
): Promise<{ fetched: FetchedChart; content: ChartContent }> => {
  const fetched = await fetchChart(fetching, source.chart, request)
  const texts =
    source.valuesFiles === null ? [] : await readValuesFiles(fetching, source.valuesFiles, request.valuesCommitId)
  const values = writeValues(texts, source, await readVariables(fetched.commit?.git_commit_id))
  return { fetched, content: { archive: fetched.archive.toString('base64'), values } }
}

/** A redeploy keeps the deployed version of parts that have not changed since. */
const deployedVersion = (
  { service }: ServiceRun,
  source: ChartSource,
  current: Release | null,
): Pick<ServiceRequest, 'commitId' | 'chartVersion' | 'valuesCommitId'> => {
  const { redeploy, commitId, chartVersion, valuesCommitId } = service.requested
  const asked = { commitId, chartVersion, valuesCommitId }
  if (redeploy !== true || current === null) return clean(asked)
  const deployed = 'git' in source.chart ? (commitOf(current) ?? undefined) : undefined
  return clean({ ...asked, commitId: commitId ?? deployed })
}

const clean = <T extends object>(value: T) =>
  Object.fromEntries(Object.entries(value).filter(([, each]) => each !== undefined)) as {
    [Name in keyof T]?: NonNullable<T[Name]>
  }

/** Fetched anew by a process that resumes: only the frozen content is kept. */
export const makeChart = async (
  run: ServiceRun,
  source: ChartSource,
  readVariables: (commitId?: string) => Promise<EffectiveVariables>,
): Promise<Made> => {
  const { parts, service, claim } = run
  const missing = await parts.builder.missingTool('helm')
  if (missing !== null) throw new DeploymentError('tool_missing', missing)
  await enter(run, 'building')
  const current = await currentRelease(parts.database, service.id)
  return run.step('source', { deadlineMs: fetchDeadlineMs, remember: false }, async (signal) => {
    const say: Fetching['say'] = (text, level) => run.log.line('source', text, level)
    const fetching = { parts, organizationId: claim.organizationId, signal, say }
    const version = deployedVersion(run, source, current)
    const { fetched, content } = await readChart(fetching, source, version, readVariables)
    say(`The chart has ${Math.ceil(fetched.archive.length / 1024)} KiB, with ${content.values.length} files of values.`)
    // It distinguishes releases that may differ only in these files.
    const mark = createHash('sha256').update(JSON.stringify(content.values)).digest('hex').slice(0, 12)
    const image = source.valuesFiles === null ? fetched.name : `${fetched.name} with values ${mark}`
    return { image, commit: fetched.commit, source: null, sealed: { chart: content } }
  })
}

/** The default values of a chart: its `values.yaml`; empty without one. */
export const defaultValuesOf = async ({ archive }: Pick<FetchedChart, 'archive'>): Promise<string> =>
  (await fileOfChart(archive, 'values.yaml')) ?? ''
