/** From how a container ended to one plain sentence. Pure. */
import { explainExitCode, outOfMemory } from '../../../lib/exit-codes.ts'

export interface Ending {
  /** How often it has ended since it was made. */
  exits: number
  exitCode: number
  oomKilled: boolean
  /** False when the engine will not start it again. */
  restarts: boolean
}

export interface Verdict {
  code: 'crash_loop' | 'out_of_memory'
  message: string
}

const exitsAllowed = 3

/** Null: wait, the engine starts it again and it may yet become ready. */
export const judge = (ending: Ending, memoryMb: number): Verdict | null => {
  if (ending.exits === 0) return null
  if (ending.oomKilled)
    return {
      code: 'out_of_memory',
      message: `The service ran out of memory (OOMKilled): ${outOfMemory(memoryMb)}.`,
    }
  if (ending.restarts && ending.exits < exitsAllowed) return null
  const times = ending.exits === 1 ? '' : ` ${ending.exits} times`
  const how = `exit code ${ending.exitCode}: ${explainExitCode(ending.exitCode)}`
  return { code: 'crash_loop', message: `The service exited${times} instead of becoming ready (${how}).` }
}
