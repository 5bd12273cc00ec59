/** The limits of preparing a build. Pure. Each message names the limit, the value and the setting. */
import { DeploymentError } from '../lib/errors.ts'

export interface PreparationLimits {
  /** The total size of a context's files, unpacked. */
  contextBytes: number
  /** Files, links and folders of a context. */
  contextEntries: number
  dockerfileBytes: number
  ignoreFileBytes: number
  /** For reading a commit, and again for listing its files before making a context. */
  readMs: number
  /** For sending a context. */
  contextMs: number
}

export const usualPreparation: PreparationLimits = Object.freeze({
  contextBytes: 500 * 2 ** 20,
  contextEntries: 100_000,
  dockerfileBytes: 256 * 1024,
  ignoreFileBytes: 64 * 1024,
  readMs: 60_000,
  contextMs: 600_000,
})

/** Paths and targets of links: no system accepts more. */
export const maxPathBytes = 4096

/** Unpacked, files that .dockerignore excludes may have so many times the size of a context: they are read too. */
export const ignoredTimes = 10

export const refusePreparation = (sentence: string): DeploymentError => new DeploymentError('build_refused', sentence)

const size = (bytes: number): string => {
  if (bytes < 2 ** 20) return `${Math.ceil(bytes / 1024)} kB`
  return `${bytes < 10 * 2 ** 20 ? (bytes / 2 ** 20).toFixed(1) : Math.ceil(bytes / 2 ** 20)} MB`
}

export const dockerfileTooLarge = (path: string, bytes: number, { dockerfileBytes }: PreparationLimits) =>
  refusePreparation(
    `The Dockerfile ${path} has ${size(bytes)}: at most ${size(dockerfileBytes)} are allowed (SLIPWAY_DOCKERFILE_MAX_KB).`,
  )

export const ignoreFileTooLarge = (bytes: number, { ignoreFileBytes }: PreparationLimits) =>
  refusePreparation(
    `.dockerignore has ${size(bytes)}: at most ${size(ignoreFileBytes)} are allowed (SLIPWAY_DOCKERIGNORE_MAX_KB).`,
  )

export const contextTooLarge = ({ contextBytes }: PreparationLimits) =>
  refusePreparation(
    `The files of the build have more than ${size(contextBytes)} (SLIPWAY_CONTEXT_MAX_MB): exclude some with .dockerignore.`,
  )

export const contextTooMany = ({ contextEntries }: PreparationLimits) =>
  refusePreparation(
    `The build has more than ${contextEntries} files and folders (SLIPWAY_CONTEXT_MAX_ENTRIES): exclude some with .dockerignore.`,
  )

export const folderTooLarge = ({ contextBytes, contextEntries }: PreparationLimits) =>
  refusePreparation(
    `The folder of the build has more than ${size(ignoredTimes * contextBytes)} or ${ignoredTimes * contextEntries} files, ` +
      `including those that .dockerignore excludes: ${ignoredTimes} times SLIPWAY_CONTEXT_MAX_MB and SLIPWAY_CONTEXT_MAX_ENTRIES.`,
  )

export const readTooSlow = ({ readMs }: PreparationLimits) =>
  refusePreparation(
    `The repository could not be read for the build within ${Math.ceil(readMs / 1000)} s (SLIPWAY_PREPARE_SECONDS).`,
  )

export const contextTooSlow = ({ contextMs }: PreparationLimits) =>
  refusePreparation(
    `The files of the build could not be transferred within ${Math.ceil(contextMs / 1000)} s (SLIPWAY_CONTEXT_SECONDS).`,
  )

export const readTooMuch = () =>
  refusePreparation('Reading the repository for the build exceeded its memory limit: use fewer or smaller files.')

/** `why` is the message of the error that ended the thread. */
export const readFailed = (why: string) =>
  refusePreparation(
    `The thread that read the repository for the build failed: ${why.split('\n')[0]!.slice(0, 200)}. Deploy again, and report it if it fails again.`,
  )
