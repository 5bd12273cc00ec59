/** The Dockerfile of a build around a tool of the operator or of an image. Pure: it is used in a separate thread. */
import { readFragment } from './dockerfile.ts'

/**
 * The Dockerfile of an image around a tool. From an image that is named only our script is added to it. The user's own
 * instructions may not begin another image.
 */
export const toolDockerfile = (fragment: string | null, image?: string): string =>
  [
    'ARG SLIPWAY_TOOL',
    ...(image === undefined ? [`FROM \${SLIPWAY_TOOL}`] : [`FROM \${SLIPWAY_TOOL} AS slipway`, `FROM ${image}`]),
    ...(fragment === null ? [] : readFragment(fragment)),
    'USER 0',
    ...(image === undefined ? [] : ['COPY --from=slipway /bin/slipway-module /bin/slipway-module']),
    'COPY . /module',
    '',
  ].join('\n')
