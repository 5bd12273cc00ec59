/** What the engine refuses of a container, at its creation or its start, as one sentence for the service's owner. Pure. */

import { isDiskFull } from '../../lib/disk-full.ts'
import { isEngineError } from '../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'

const mostChars = 300

interface Cause {
  pattern: RegExp
  sentence(found: RegExpExecArray): string
}

/** A path of the engine's machine as the program sees it. */
const insideOf = (path: string): string => path.replace(/^.*?\/(?:merged|rootfs|mnt\/\w+)(?=\/|$)/, '') || '/'

const causes: readonly Cause[] = [
  {
    pattern: /listen \w+ ([\d.]+):\d+: bind: cannot assign requested address/,
    sentence: ([, address]) =>
      `The engine cannot publish ports at ${address}: its machine does not have this address. Correct the address that the cluster names.`,
  },
  {
    pattern: /no command specified/i,
    sentence: () =>
      'The image says no command to run: add CMD or ENTRYPOINT to its Dockerfile, or set an entrypoint or arguments of the service.',
  },
  {
    pattern: /source (\S+) is not (?:a )?directory/i,
    sentence: ([, source]) =>
      `A volume cannot be mounted at ${insideOf(source!)}, which is a file in the image: mount it at the folder that contains the file.`,
  },
]

const insideOfStore = (path: string): string => {
  const inside = insideOf(path)
  return inside === path ? 'a path of the engine' : inside
}

/** The engine's own words, without what belongs to it and to us: paths on its machine, ids, names that we made. */
const cleaned = (message: string): string =>
  message
    .replaceAll(/\/[^\s"':]*\/(?:overlay2|aufs|btrfs|zfs|vfs|containers|volumes|containerd)\/[^\s"':]*/g, insideOfStore)
    .replaceAll(/\b[0-9a-f]{64}\b/g, 'the container')
    .replaceAll(/\bslipway-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g, 'of the environment')
    .replaceAll(/\bslipway-[\w.-]+/g, 'of the service')
    .replaceAll(/\s+/g, ' ')
    .trim()
    .slice(0, mostChars)

/** Anything but an answer of the engine, and a full disk, is left as it is. */
export const explainRefusal = (error: unknown): unknown => {
  if (!isEngineError(error) || isDiskFull(error)) return error
  for (const { pattern, sentence } of causes) {
    const found = pattern.exec(error.message)
    if (found !== null) return new DeploymentError('start_failed', sentence(found), { cause: error })
  }
  const message = `The engine refused to start the container: ${cleaned(error.message)}`
  return new DeploymentError('start_failed', message, { cause: error })
}
