/** From how a container ended to one plain sentence. Pure. */
import { explainExitCode, outOfMemory } from '../../../lib/exit-codes.ts'
import { tellingLine } from '../../../lib/last-words.ts'

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

/** The first process of a container is the engine's, which says what it could not start. */
const notStarted = /^\[FATAL tini \(\d+\)\] exec (.{1,200}) failed: (.{1,100})$/
const reasons: Record<string, string> = {
  'Exec format error': 'it is built for another CPU architecture, or is a script that does not begin with #!',
  'No such file or directory': 'the image has no such file, or not the interpreter or loader that it names',
  'Permission denied': 'it is not executable',
}
/** The program's own last words, as text of its owner's. */
export const withLastWords = (message: string, lines: readonly string[]): string => {
  const line = tellingLine(lines)
  if (line === null) return message
  const [, command, why] = notStarted.exec(line) ?? []
  if (why !== undefined) {
    const reason = reasons[why]
    return `${message} Its command ${command} cannot be started: ${why}${reason === undefined ? '' : ` (${reason})`}.`
  }
  return `${message} It said: ${line}`
}
