/** The Dockerfile of a build around a tool. Pure: it is used in a separate thread. */
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
