/**
 * Source → image. Promises the same image for the same content without building twice. Does not know deployments. A
 * killed build leaves at most a stale work folder, which the next start removes.
 */
import type { Readable } from 'node:stream'
import type { ListedImage } from '../images/listed-image.ts'
import type { Secret } from '../lib/secret.ts'

export interface GitLogin {
  username: string
  password: string
  /** The only origins that it may be sent to; absent: the repository's own. */
  origins?: readonly string[]
}

export interface GitSource {
  /** The owner of this copy of the repository: organizations never share fetched objects. */
  organizationId: string
  url: string
  /** Name of a branch, or of a tag if there is no such branch. */
  branch: string
  /** The full commit id (40 or 64 hex digits); default the branch's head. */
  commitId?: string
  /** Sent as HTTP basic authentication by `GIT_CONFIG_*` environment, never in argv. */
  credentials?: Secret<GitLogin>
}

export interface Commit {
  git_commit_id: string
  message: string
  author_name: string
  /** RFC 3339 UTC with Z. */
  created_at: string
  tag: string
}

/** An image built around a program, without a Dockerfile in the repository. */
export interface ToolBuild {
  /** `tofu` or `terraform`. */
  name: string
  /** An image that has the program and a shell; without it, the program of the operator is used. */
  image?: string
  /** Instructions of the user's own before the repository is copied: their text, or a file relative to the root path. */
  fragment: { text: string } | { path: string } | null
}

/**
 * Builds with the same scope share results and caches: those of one mode in one project, which the same people deploy.
 * A build can leave arbitrary content in them, and roles are given by project and mode.
 */
export const cacheScopeOf = (projectId: string, mode: string): string => `${projectId} ${mode}`

export interface BuildRequest {
  /** Owner of the build: its base images and cached results belong to this organization. */
  organizationId: string
  clusterId: string
  /** Results of other scopes are not reused, whatever their content (`cacheScopeOf`). */
  cacheScope: string
  source: GitSource
  commitId: string
  /** Folder inside the repository, `/` for its top. */
  rootPath: string
  dockerfilePath: string
  targetStage: string | null
  tool?: ToolBuild
  /** Every variable the service sees; only those the Dockerfile declares with ARG are passed. */
  variables: Secret<Record<string, string>>
  /** Values to mask in the log (6 characters or longer). */
  secrets: Secret<string[]>
  memoryMb: number
  cpuMillicores: number
  timeoutMs: number
  /** Submodules stay empty folders. */
  skipSubmodules?: boolean
  noCache?: boolean
  /** Id of the service and deployment, for names and labels. */
  serviceId: string
  deploymentId: string
}

export interface BuiltImage {
  /** Reference to run, by id or digest: it never moves. */
  reference: string
  imageId: string
  contentKey: string
  /** True if an image with this content key already existed: nothing was built. */
  skipped: boolean
}

/** The place for an image, if that is not the engine that builds it. */
export interface Destination {
  /** The existing image of this content there; null if it must be brought there. */
  find(contentKey: string, signal: AbortSignal): Promise<Pick<BuiltImage, 'reference' | 'imageId'> | null>
  /** Brings it there. `save` reads the image as the engine saves it. */
  take(
    image: Pick<BuiltImage, 'imageId' | 'contentKey'> & { save(signal: AbortSignal): Promise<Readable> },
    onLog: (text: string) => void,
    signal: AbortSignal,
  ): Promise<Pick<BuiltImage, 'reference' | 'imageId'>>
}

/** Browsing a repository. All reject like `fetch`. */
export interface Browser {
  /** Names of its branches; the source's own branch does not matter. */
  branches(source: GitSource, signal: AbortSignal): Promise<string[]>
  /** Commits of the branch, or from the source's commit back, the newest first. */
  commits(source: GitSource, count: number, signal: AbortSignal): Promise<Commit[]>
  /**
   * Names of the folders in a folder (`''` for the top) at the branch's head; `git_ref_missing` without that folder.
   */
  folders(source: GitSource, folder: string, signal: AbortSignal): Promise<string[]>
  /**
   * The text files below a folder at the branch's head whose path in it is wanted; links are left out. Rejects with
   * `git_too_large` for more than 50, or for one of more than 64 KB.
   */
  files(
    source: GitSource,
    folder: string,
    isWanted: (path: string) => boolean,
    signal: AbortSignal,
  ): Promise<{ path: string; text: string }[]>
  /**
   * All files below a folder at the branch's head, or at the source's commit, by their paths in it. Rejects with
   * `git_too_large`, before it reads the excess, and with `git_refused` for links and submodules.
   */
  folder(
    source: GitSource,
    folder: string,
    most: { files: number; bytes: number },
    signal: AbortSignal,
  ): Promise<{ path: string; content: Buffer }[]>
  /**
   * The heads of these branches now, or the commits of tags of these names; the source's own branch does not matter.
   * Missing ones are left out.
   */
  heads(source: GitSource, branches: readonly string[], signal: AbortSignal): Promise<ReadonlyMap<string, string>>
  /**
   * The paths in which the source's commit differs from an earlier one; null if they are unknown, because the earlier
   * one is gone, or because there are too many.
   */
  changes(source: GitSource, from: string, signal: AbortSignal): Promise<string[] | null>
}

export interface ImageBuilder {
  /**
   * The image of a fetched commit. `onLog` gets the output as it is written, scrubbed and capped. Rejects with a
   * `DeploymentError`: `dockerfile_missing`, `path_outside`, `build_refused`, `build_failed`, `build_timeout`,
   * `build_canceled`. With a destination, the image is there when this resolves, and its rejections are passed on.
   */
  build(
    request: BuildRequest,
    onLog: (text: string) => void,
    signal: AbortSignal,
    destination?: Destination,
  ): Promise<BuiltImage>
  /** The existing image of a commit; null if it would have to be built. */
  built(request: BuildRequest, signal: AbortSignal, destination?: Destination): Promise<string | null>
  /**
   * Releases images that the organization no longer needs: removes their names, and images that then have no name and
   * do not run. Resolves to those that something runs from. Absent where nothing is kept.
   */
  forget?(organizationId: string, imageIds: readonly string[]): Promise<string[]>
  /** All images of the engine, those without a name too. Absent as above; likewise those below. */
  images?(signal: AbortSignal): Promise<ListedImage[]>
  /** Removes images without a name that nothing needs; resolves to the others. */
  removeLayers?(imageIds: readonly string[]): Promise<string[]>
  /** Removes caches of build steps on this cluster that are old, too many, or left by a deleted organization. */
  tidyCaches?(clusterId: string): Promise<void>
  /**
   * Id of an image on this engine around the operator's tool of this name (`tofu`, `terraform`). Rejects with
   * `tool_missing`. Absent where nothing is built.
   */
  toolImage?(name: string, signal: AbortSignal): Promise<string>
  close(): Promise<void>
}

/** Repositories, and the images made from them on the engine of the cluster that a request names. */
export interface Builder extends Browser, ImageBuilder {
  /**
   * The commit that a deployment of this source would use now, fetched into the mirror. Rejects with a
   * `DeploymentError`: `git_unreachable`, `git_denied`, `git_ref_missing`, `git_refused`.
   */
  fetch(source: GitSource, signal: AbortSignal): Promise<Commit>
  /**
   * Removes copies of repositories that nothing has used for so long, and those of all organizations but these. Absent
   * where none are kept.
   */
  removeOldMirrors?(organizationIds: readonly string[], idleMs: number, signal: AbortSignal): Promise<number>
  /** The branch's head without fetching objects; null when it cannot be read within `timeoutMs`. */
  head(source: GitSource, timeoutMs: number): Promise<string | null>
  /** One sentence that says what a build around the operator's tool of this name needs; null if it is installed. */
  missingTool(name: string): Promise<string | null>
  /** The tools that this server's operator has installed, each with its version (`1.9.4`). */
  toolVersions(): Promise<{ name: string; version: string }[]>
}
