/** The image of a deployment: built from a commit, or pulled from a registry. Its source is stored with it. */
import { type Commit, cacheScopeOf } from '../../builds/builder.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { joinTag } from '../../lib/docker/image-name.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { Secret } from '../../lib/secret.ts'
import type { Progress } from '../../runtimes/runtime.ts'
import { openGitSource } from '../credentials/git-source.ts'
import { type ImageSource, openRegistry } from '../credentials/registry-image.ts'
import { needsOwnTool, type Source } from '../deployments.ts'
import { hasNoImage, type SealedContent } from '../desired/workload.ts'
import type { DeploymentParts, EffectiveVariables } from '../parts.ts'
import { enter, type ServiceRun } from '../progress/service-run.ts'
import {
  currentRelease,
  type OpenedRelease,
  publicImageOf,
  type Release,
  type ReleaseSource,
} from '../release/releases.ts'
import { commitOf, staysAt } from '../release/version-change.ts'

const minute = 60_000
/** A minute more than an engine has for it (images/engine-images.ts). */
export const pullDeadlineMs = 61 * minute
const usualLimits = { timeoutMs: 30 * minute, cpuMillicores: 2000, memoryMb: 2048 }

type GitSpec = Extract<Source, { from: 'git' }>

/** It existed when the deployment was requested, or the request would have been refused. */
const refuseMissingTool = async ({ parts }: ServiceRun, source: GitSpec): Promise<void> => {
  const missing = needsOwnTool(source) ? await parts.builder.missingTool(source.tool.name) : null
  if (missing !== null) throw new DeploymentError('tool_missing', missing)
}

/** What a release is made of. */
export interface Made extends Pick<Release, 'image' | 'commit' | 'source'> {
  /** Content besides the image: sealed with the release. */
  sealed?: SealedContent
  /** Texts to remove from logs and errors, besides the secrets among its variables. */
  hidden?: readonly string[]
}

const deployedCommit = async ({ parts, service }: ServiceRun): Promise<string | undefined> => {
  if (service.requested.redeploy !== true) return undefined
  return commitOf(await currentRelease(parts.database, service.id)) ?? undefined
}

const fetchNow = async (
  run: ServiceRun,
  { git }: Pick<GitSpec, 'git'>,
  signal: AbortSignal,
  wanted?: string,
): Promise<Commit> => {
  const { parts, service, claim } = run
  const source = await openGitSource(parts, claim.organizationId, git, (warning) =>
    run.log.line('source', warning, 'error'),
  )
  const commitId = wanted ?? service.requested.commitId ?? (await deployedCommit(run))
  run.log.line('source', `Fetching ${commitId ?? git.branch} from the repository.`)
  const commit = await parts.builder.fetch({ ...source, ...(commitId === undefined ? {} : { commitId }) }, signal)
  const tag = commit.tag === '' ? '' : ` (tag ${commit.tag})`
  run.log.line('source', `Commit ${commit.git_commit_id.slice(0, 12)}${tag}: ${commit.message.split('\n')[0]}`)
  return commit
}

/** The step that fetches the wanted commit: the requested one, the deployed one for a redeploy, else the branch's head. */
export const fetchSource = (run: ServiceRun, source: Pick<GitSpec, 'git'>, wanted?: string): Promise<Commit> =>
  run.step('source', { deadlineMs: 11 * minute }, (signal) => fetchNow(run, source, signal, wanted))

type BuildVariables = Pick<EffectiveVariables, 'env' | 'secretValues'>

/** `readVariables` is called once the commit is available, so that a build sees the newest ones. */
export const build = async (
  run: ServiceRun,
  source: GitSpec,
  readVariables: (commitId: string) => Promise<BuildVariables>,
  commitId?: string,
): Promise<Made> => {
  await refuseMissingTool(run, source)
  await enter(run, 'building')
  const commit = await fetchSource(run, source, commitId)
  const variables = await readVariables(commit.git_commit_id)
  return { image: await buildImage(run, source, commit, variables), commit, source: null }
}

const buildImage = async (
  run: ServiceRun,
  source: GitSpec,
  commit: Pick<Commit, 'git_commit_id'>,
  variables: BuildVariables,
): Promise<string> => {
  const { parts, service, step, claim } = run
  const limits = { ...usualLimits, ...source.limits }
  const image = await step('image', { deadlineMs: limits.timeoutMs + minute }, async (signal) =>
    parts.builder.build(
      {
        ...source,
        organizationId: claim.organizationId,
        clusterId: service.clusterId,
        cacheScope: cacheScopeOf(service.projectId, service.mode),
        source: await openGitSource(parts, claim.organizationId, source.git),
        commitId: commit.git_commit_id,
        variables: new Secret(variables.env),
        secrets: new Secret(variables.secretValues),
        ...limits,
        serviceId: service.id,
        deploymentId: claim.id,
      },
      (text) => run.log.output('image', text),
      signal,
    ),
  )
  run.log.line(
    'built',
    image.skipped ? 'Image already built from the same content; skipping the build.' : 'Image built.',
  )
  return image.reference
}

const unbuildable = (): DeploymentError =>
  new DeploymentError(
    'image_missing',
    'The image of this version was removed from the cluster, and its source was not recorded: deploy the service.',
  )

/** A built image that is lost, made again from its commit with the configuration and variables of the release. */
const buildAgain = async (run: ServiceRun, { release, environment }: OpenedRelease): Promise<string> => {
  const { from } = release.workload
  const { git_commit_id: commitId } = (release.commit ?? {}) as Partial<Commit>
  if (from?.from !== 'git' || commitId === undefined) throw unbuildable()
  run.log.line('image', 'The image of this version was removed from the cluster: building it again.', 'error')
  try {
    const { image } = await build(run, from, async () => environment, commitId)
    return image
  } catch (error) {
    if (!(error instanceof DeploymentError)) throw error
    const message = `The image of this version was removed from the cluster and could not be built again. ${error.message}`
    throw new DeploymentError(error.code, message, { lines: error.lines, cause: error })
  }
}

/** `ensureImage`, as a step of the deployment. */
export const ensureReleaseImage = (run: ServiceRun, release: Release): Promise<boolean> =>
  run.step('pull', { deadlineMs: pullDeadlineMs }, (signal) =>
    ensureImage(run.parts, run.cluster, release, (text) => run.log.line('pull', text), signal),
  )

/** The image that a release can start from on its cluster: its own, pulled again if it is lost, or built again. */
export const imageFor = async (run: ServiceRun, opened: OpenedRelease): Promise<string> => {
  if (await ensureReleaseImage(run, opened.release)) return opened.release.image
  const built = await buildAgain(run, opened)
  await enter(run, 'working')
  return built
}

/** A redeploy, and an unchanged tag of a public image, keep the deployed image (`staysAt`). */
const deployedImage = async (
  { parts, cluster, service }: ServiceRun,
  wanted: ImageSource,
  signal: AbortSignal,
): Promise<Release | null> => {
  const { redeploy } = service.requested
  if (redeploy !== true && wanted.registryId !== null) return null
  const release = await currentRelease(parts.database, service.id)
  if (release === null || !staysAt(release, wanted, service.requested)) return null
  if (redeploy === true) return release
  return (await cluster.images.isHeld(release.organizationId, release.image, signal)) ? release : null
}

export const pull = async (run: ServiceRun, wanted: ImageSource): Promise<Made> => {
  const { service, step } = run
  await enter(run, 'working')
  const { registryId, name, tag: configured } = wanted
  return step('pull', { deadlineMs: pullDeadlineMs }, async (signal) => {
    const deployed = await deployedImage(run, wanted, signal)
    if (deployed !== null) {
      await ensureImage(run.parts, run.cluster, deployed, (text) => run.log.line('pull', text), signal)
      return { image: deployed.image, commit: null, source: deployed.source }
    }
    const source: ReleaseSource = { registryId, name, tag: service.requested.imageTag ?? configured, configured }
    return { image: await pullFrom(run, source, signal), commit: null, source }
  })
}

const pullFrom = async (run: ServiceRun, source: ReleaseSource, signal: AbortSignal): Promise<string> => {
  const { organizationId } = run.claim
  const known = await knownPublicImage(run, source, signal)
  if (known !== null) return known
  const { repository, ...access } = await openRegistry(run.parts, organizationId, source)
  const wanted = { organizationId, reference: joinTag(repository, source.tag), ...access, refresh: true }
  await run.parts.disk?.refuseImage(organizationId, signal)
  const reference = await run.cluster.images.hold(wanted, (text) => run.log.line('pull', text), signal)
  run.log.line('pull', `Image available: ${reference}`)
  return reference
}

/** A public image pulled already is used: a moved tag must not change a database, and no registry is asked. */
const knownPublicImage = async (
  { parts, cluster, claim }: ServiceRun,
  { registryId, name, tag }: ReleaseSource,
  signal: AbortSignal,
): Promise<string | null> => {
  if (registryId !== null) return null
  const { organizationId } = claim
  const image = await publicImageOf(parts.database, organizationId, { name, tag })
  if (image === null) return null
  return (await cluster.images.isHeld(organizationId, image, signal)) ? image : null
}

/** None for a registry that was deleted or cannot be logged in to: the engine may still have the image. */
const accessFor = async (parts: DeploymentParts, { organizationId }: Release, source: ReleaseSource) => {
  try {
    const { origin, login } = await openRegistry(parts, organizationId, source)
    return { origin, login }
  } catch (error) {
    if (error instanceof DeploymentError && error.code !== 'registry_refused') return noLogin
    throw error
  }
}

const noLogin = { origin: null, login: null }

/** Whether the cluster has a release's image: one that was pulled and is lost is pulled again, a built one is not. */
export const ensureImage = async (
  parts: DeploymentParts,
  cluster: Cluster,
  release: Release,
  progress: Progress,
  signal: AbortSignal,
): Promise<boolean> => {
  const { organizationId, image: reference } = release
  if (hasNoImage(release.workload)) return true
  // Nothing is looked up, and no login is used, for an image that is on the engine.
  if (await cluster.images.isHeld(organizationId, reference, signal)) return true
  if (release.source === null) return false
  const access = await accessFor(parts, release, release.source)
  await cluster.images.hold({ organizationId, reference, ...access, refresh: false }, progress, signal)
  return true
}
