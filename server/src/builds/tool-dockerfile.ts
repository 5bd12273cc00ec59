/** The text of a build around a tool. Pure: a worker makes it. */
import { DeploymentError } from '../lib/errors.ts'

/** The Dockerfile of an image around a tool. The user's own instructions may not begin another image. */
export const toolDockerfile = (fragment: string | null): string => {
  if (fragment !== null && /^\s*(?:FROM|ONBUILD)\s/im.test(fragment))
    throw new DeploymentError(
      'build_refused',
      'The Dockerfile fragment begins an image of its own: FROM is not for it.',
    )
  return `ARG SLIPWAY_TOOL\nFROM \${SLIPWAY_TOOL}\n${fragment ?? ''}\n\nUSER 0\nCOPY . /module\n`
}
