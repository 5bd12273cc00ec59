/** What a build around a tool of the operator's is made by. Pure: it is read in a thread of its own. */
import { readFragment } from './dockerfile.ts'

/** The Dockerfile of an image around a tool. The user's own instructions may not begin another image. */
export const toolDockerfile = (fragment: string | null): string =>
  [
    'ARG SLIPWAY_TOOL',
    `FROM \${SLIPWAY_TOOL}`,
    ...(fragment === null ? [] : readFragment(fragment)),
    'USER 0',
    'COPY . /module',
    '',
  ].join('\n')
