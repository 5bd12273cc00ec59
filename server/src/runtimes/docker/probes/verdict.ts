/** From how a container ended to one plain sentence. Pure. */

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

const meanings: Record<number, string> = {
  0: 'it exited without an error',
  1: 'the program reported an error',
  2: 'the program reported an error or was called incorrectly',
  126: 'the command cannot be executed',
  127: 'the command was not found',
  130: 'it was interrupted (SIGINT)',
  132: 'illegal instruction: the image may be for another CPU architecture',
  134: 'it aborted (SIGABRT)',
  137: 'it was killed (SIGKILL)',
  139: 'it crashed with a memory fault (SIGSEGV)',
  143: 'it was told to exit (SIGTERM)',
}

export const explainExitCode = (exitCode: number): string =>
  meanings[exitCode] ??
  (exitCode > 128 && exitCode < 160 ? `it was killed by signal ${exitCode - 128}` : 'the program reported an error')

/** Null: wait, the engine starts it again and it may yet become ready. */
export const judge = (ending: Ending, memoryMb: number): Verdict | null => {
  if (ending.exits === 0) return null
  if (ending.oomKilled)
    return {
      code: 'out_of_memory',
      message: `The service exceeded its memory limit of ${memoryMb} MB (OOMKilled): raise the limit.`,
    }
  if (ending.restarts && ending.exits < exitsAllowed) return null
  const times = ending.exits === 1 ? '' : ` ${ending.exits} times`
  const how = `exit code ${ending.exitCode}: ${explainExitCode(ending.exitCode)}`
  return { code: 'crash_loop', message: `The service exited${times} instead of becoming ready (${how}).` }
}
