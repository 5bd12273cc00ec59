/** Where a program that runs to its end finds what it is given, and leaves what is kept of it. */

/** What the last run left, when there was one. */
export const givenState = '/slipway-input/state.json'
/** What this run leaves to the next one. */
export const leftState = '/slipway-output/state.json'
const maxStateBytes = 32 * 2 ** 20

/** What it tells its neighbours: the first one found counts. The second is where existing programs write. */
export const outputFiles = ['/slipway-output/slipway-output.json', '/qovery-output/qovery-output.json'] as const
const maxOutputBytes = 2 ** 20

export const outputFolders = ['/slipway-output', '/qovery-output'] as const

/** What is read of an execution that has ended, with the bytes that each may have. */
export const stateBytes = { [leftState]: maxStateBytes }
export const outputBytes: Record<string, number> = Object.fromEntries(outputFiles.map((path) => [path, maxOutputBytes]))
