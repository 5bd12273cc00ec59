/** Paths for the inputs of a program that runs to its end, and for its outputs. */
import type { TaskOutput, TaskOutputs } from '../../runtimes/runtime.ts'
import type { TaskSpec } from '../deployments.ts'

/** The state left by the last run, if there was one. */
export const givenState = '/slipway-input/state.json'
/** The state that this run leaves for the next one. */
export const leftState = '/slipway-output/state.json'

/** The variables for other services: the first existing file counts. The second is where existing programs write. */
export const outputFiles = ['/slipway-output/slipway-output.json', '/qovery-output/qovery-output.json'] as const

export const stateOutputs: readonly TaskOutput[] = [{ path: leftState, maxBytes: 32 * 2 ** 20 }]
const told: readonly TaskOutput[] = outputFiles.map((path, index) => ({
  path,
  maxBytes: 2 ** 20,
  ...(index === 0 ? {} : { isAlternative: true }),
}))

/** The outputs collected from an execution. */
export const outputsOf = ({ state }: Pick<TaskSpec, 'state'>): TaskOutput[] =>
  state === undefined ? [...told] : [...stateOutputs, ...told]

/** The text of an output; undefined if the program wrote none. Rejects one that could not be collected. */
export const textOf = (outputs: TaskOutputs, path: string): string | undefined => {
  const found = outputs[path]
  if (found !== undefined && 'error' in found) throw found.error
  return found !== undefined && 'text' in found ? found.text : undefined
}
