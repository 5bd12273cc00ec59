/**
 * The version that a deploy would bring, without fetching, pulling or building anything: the commit at the head of a
 * branch, or the present digest of a tag. A deployment uses it to skip unchanged services, a plan to report them.
 */
import type { Commit } from '../../builds/builder.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { joinTag } from '../../lib/docker/image-name.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { openGitSource } from '../credentials/git-source.ts'
import { type ImageSource, openRegistry } from '../credentials/registry-image.ts'
import type { ChartSpec, ServiceRequest, Source } from '../deployments.ts'
import { moduleName } from '../desired/modules.ts'
import type { DeploymentParts } from '../parts.ts'
import type { Release } from './releases.ts'
import type { Version } from './version-change.ts'

const headTimeoutMs = 5000

type GitSource = Extract<Source, { from: 'git' }>

/** The head of the branch; null when it cannot be read in time. */
const readHead = async (
  parts: DeploymentParts,
  organizationId: string,
  { git }: Pick<GitSource, 'git'>,
): Promise<string | null> => {
  try {
    return await parts.builder.head(await openGitSource(parts, organizationId, git), headTimeoutMs)
  } catch (error) {
    // The token was deleted: the deployment will report it.
    if (error instanceof DeploymentError) return null
    throw error
  }
}

export const commitOf = (release: Release | null): string | null =>
  (release?.commit as Commit | null | undefined)?.git_commit_id ?? null

/** The registry's current digest of the tag: `from` if unknown, null if it refuses the login. */
const readDigest = async (
  parts: DeploymentParts,
  { images }: Cluster,
  organizationId: string,
  source: ImageSource,
  from: string | null,
  signal: AbortSignal,
): Promise<string | null> => {
  try {
    const { repository, ...access } = await openRegistry(parts, organizationId, source)
    const reference = joinTag(repository, source.tag)
    return (await images.resolve({ organizationId, reference, ...access }, signal)) ?? from
  } catch (error) {
    if (!(error instanceof DeploymentError)) throw error
    // The deployment, which pulls, reports why.
    return error.code === 'image_denied' ? null : from
  }
}

/** Whether a deploy of this image keeps the release's own, whatever its registry has by now. */
export const staysAt = (
  current: Release | null,
  wanted: ImageSource,
  { redeploy, imageTag }: Pick<ServiceRequest, 'redeploy' | 'imageTag'>,
): boolean => {
  const from = current?.source ?? null
  if (from === null || from.registryId !== wanted.registryId || from.name !== wanted.name) return false
  if (redeploy === true) return from.configured === wanted.tag
  // Images without a registry of the user's own are public ones, whose tag stays what it was when it was first pulled.
  return wanted.registryId === null && from.tag === (imageTag ?? wanted.tag)
}

const nextImage = async (
  parts: DeploymentParts,
  cluster: Cluster,
  organizationId: string,
  requested: Omit<ServiceRequest, 'id'>,
  wanted: ImageSource,
  current: Release | null,
  signal: AbortSignal,
): Promise<Version> => {
  const asked = { ...wanted, tag: requested.imageTag ?? wanted.tag }
  const name = joinTag(wanted.name, asked.tag)
  const from = current?.image ?? null
  const was = current?.source ?? null
  const fromName = was === null ? from : joinTag(was.name, was.tag)
  if (staysAt(current, wanted, requested)) return { of: 'image', from, to: from, fromName, toName: fromName }
  const isSameName = was?.registryId === wanted.registryId && was.name === wanted.name && was.tag === asked.tag
  const to = isSameName ? await readDigest(parts, cluster, organizationId, asked, from, signal) : null
  if (to === null) return { of: 'image', from, to, fromName, toName: name }
  return { of: 'image', from, to, fromName: to === from ? fromName : from, toName: to === from ? name : to }
}

/**
 * A commit requested by its id is shown only while its host lets this organization read the repository: an id does not
 * prove access.
 */
const readableCommit = async (
  parts: DeploymentParts,
  organizationId: string,
  source: Pick<GitSource, 'git'>,
  commitId: string,
): Promise<string | null> => ((await readHead(parts, organizationId, source)) === null ? null : commitId)

/** For a chart of a chart repository. The sources of its values may have changed. */
const nextChart = (
  { chartName, chartVersion }: Extract<ChartSpec['chart'], { chartName: string }>,
  hasValuesFiles: boolean,
  requested: Omit<ServiceRequest, 'id'>,
  current: Release | null,
): Version => {
  const from = current?.image ?? null
  const name = `${chartName} ${requested.chartVersion ?? chartVersion}`
  return { of: 'chart', from, to: hasValuesFiles ? null : name, fromName: from, toName: name }
}

/** The deployed version, and the one that a deploy as requested would bring. */
export const nextVersion = async (
  parts: DeploymentParts,
  cluster: Cluster,
  organizationId: string,
  requested: Omit<ServiceRequest, 'id'>,
  source: Source,
  current: Release | null,
  signal: AbortSignal,
): Promise<Version> => {
  if (source.from === 'module') {
    const [from, to] = [current?.image ?? null, moduleName(source)]
    return { of: 'image', from, to, fromName: from, toName: to }
  }
  if (source.from === 'image') return nextImage(parts, cluster, organizationId, requested, source, current, signal)
  if (source.from === 'chart' && !('git' in source.chart))
    return nextChart(source.chart, source.valuesFiles !== null, requested, current)
  const git = source.from === 'chart' ? (source.chart as { git: GitSource['git'] }) : source
  const from = commitOf(current)
  if (source.from === 'chart' && source.valuesFiles !== null)
    return { of: 'chart', from, to: null, fromName: from, toName: from }
  const { commitId, redeploy } = requested
  // The deployed commit needs no check.
  if (commitId !== undefined && commitId !== from)
    return { of: 'commit', from, to: await readableCommit(parts, organizationId, git, commitId) }
  const stays = redeploy === true ? from : null
  return { of: 'commit', from, to: commitId ?? stays ?? (await readHead(parts, organizationId, git)) }
}
