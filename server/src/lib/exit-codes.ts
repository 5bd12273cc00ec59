/** The meaning of an exit code, as the end of a sentence. */
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
  143: 'it was asked to exit (SIGTERM)',
}

export const explainExitCode = (exitCode: number): string =>
  meanings[exitCode] ??
  (exitCode > 128 && exitCode < 160 ? `it was killed by signal ${exitCode - 128}` : 'the program reported an error')

/** Explains why the kernel killed a container: it reached its memory limit. */
export const outOfMemory = (memoryMb: number): string =>
  `it was killed at its limit of ${memoryMb} MB; raise \`memory\``
