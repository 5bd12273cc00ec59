/** An image: built from a commit of a repository, or pulled from a registry. */
import { cacheScopeOf } from '../../builds/builder.ts'
import { joinTag } from '../../lib/docker/image-name.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { Secret } from '../../lib/secret.ts'
import { openGitSource } from '../credentials/git-source.ts'
import { type ImageSource, openRegistry } from '../credentials/registry-image.ts'
import { needsOwnTool, type Source } from '../deployments.ts'
import { build, pull } from '../images/make-image.ts'
import { staysAt, type Version } from '../release/version-change.ts'
import { nextCommit } from './commit.ts'
import type { Driver, Foreseeing, Next } from './driver.ts'

type GitSpec = Extract<Source, { from: 'git' }>

const usualTimeoutMs = 30_000

/** Reference of the image that the commit was built to before; null where it would be built. */
const builtImage = async (
  { parts, organizationId, service, variables, signal }: Foreseeing,
  source: GitSpec,
  commitId: string,
): Promise<string | null> => {
  const { id, clusterId, projectId, mode } = service
  const request = {
    ...{ memoryMb: 0, cpuMillicores: 0, timeoutMs: usualTimeoutMs, deploymentId: id },
    ...source,
    ...source.limits,
    ...{ organizationId, commitId, clusterId, serviceId: id, cacheScope: cacheScopeOf(projectId, mode) },
    source: await openGitSource(parts, organizationId, source.git),
  }
  const secret = { variables: new Secret(variables.env), secrets: new Secret(variables.secretValues) }
  return parts.builder.built({ ...request, ...secret }, signal)
}

export const built: Driver<GitSpec> = {
  artifact: 'image',
  refusal: ({ builds, missingTool }, { source }) =>
    builds ?? (needsOwnTool(source) ? missingTool(source.tool.name) : null),
  folder: ({ rootPath }) => rootPath,
  next: (next, { git }) => nextCommit(next, git),
  make: build,
  async foresee(what, source) {
    const { to } = what.version
    const reference = to === null ? null : await builtImage(what, source, to)
    return { built: reference, builds: reference === null }
  },
}

/** The registry's current digest of the tag: `from` if unknown, null if it refuses the login. */
const readDigest = async (
  { parts, cluster: { images }, organizationId, signal }: Next,
  source: ImageSource,
  from: string | null,
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

const nextImage = async (next: Next, wanted: ImageSource): Promise<Version> => {
  const { requested, current } = next
  const asked = { ...wanted, tag: requested.imageTag ?? wanted.tag }
  const name = joinTag(wanted.name, asked.tag)
  const from = current?.image ?? null
  const was = current?.source ?? null
  const fromName = was === null ? from : joinTag(was.name, was.tag)
  if (staysAt(current, wanted, requested)) return { of: 'image', from, to: from, fromName, toName: fromName }
  const isSameName = was?.registryId === wanted.registryId && was.name === wanted.name && was.tag === asked.tag
  const to = isSameName ? await readDigest(next, asked, from) : null
  if (to === null) return { of: 'image', from, to, fromName, toName: name }
  return { of: 'image', from, to, fromName: to === from ? fromName : from, toName: to === from ? name : to }
}

export const pulled: Driver<ImageSource> = {
  artifact: 'image',
  refusal: () => null,
  next: nextImage,
  make: pull,
}
