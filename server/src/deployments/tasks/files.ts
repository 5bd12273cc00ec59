/** Where a program that runs to its end finds what it is given, and leaves what is kept of it. */
import type { TaskOutput, TaskOutputs } from '../../runtimes/runtime.ts'
import type { TaskSpec } from '../deployments.ts'

/** What the last run left, when there was one. */
export const givenState = '/slipway-input/state.json'
/** What this run leaves to the next one. */
export const leftState = '/slipway-output/state.json'

/** What it tells its neighbours: the first one found counts. The second is where existing programs write. */
export const outputFiles = ['/slipway-output/slipway-output.json', '/qovery-output/qovery-output.json'] as const

export const stateOutputs: readonly TaskOutput[] = [{ path: leftState, maxBytes: 32 * 2 ** 20 }]
const told: readonly TaskOutput[] = outputFiles.map((path, index) => ({
  path,
  maxBytes: 2 ** 20,
  ...(index === 0 ? {} : { isAlternative: true }),
}))

/** What is collected of an execution. */
export const outputsOf = ({ state }: Pick<TaskSpec, 'state'>): TaskOutput[] =>
  state === undefined ? [...told] : [...stateOutputs, ...told]

/** The text of an output; undefined when the program wrote none. Rejects what could not be collected. */
export const textOf = (outputs: TaskOutputs, path: string): string | undefined => {
  const found = outputs[path]
  if (found !== undefined && 'error' in found) throw found.error
  return found !== undefined && 'text' in found ? found.text : undefined
}
