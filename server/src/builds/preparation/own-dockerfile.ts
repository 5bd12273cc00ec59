/**
 * A Dockerfile of ours in a context, unseen by its COPY instructions: the engine removes a Dockerfile from the context
 * once it has read it, where .dockerignore names it. Where the repository has no .dockerignore, ours names itself too.
 */

/** In every context. */
export const ownDockerfile = '.slipway.dockerfile'

/** Text of the context's .dockerignore; `ignoreFile` is that of the repository, '' without one. */
export const ignoreFileWith = (ignoreFile: string, name: string): string =>
  ignoreFile === '' ? `.dockerignore\n${name}\n` : `${ignoreFile}\n${name}\n`
