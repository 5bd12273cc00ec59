/** The line of a failed program's output that most likely says why it failed. */
const telling = /error|fatal|panic|exception|cannot|can't|failed|refused|denied|must|missing|not found|no such|in use/i
const maxChars = 200

/** Null if it printed nothing. */
export const tellingLine = (lines: readonly string[]): string | null => {
  const said = lines.filter((line) => line.trim() !== '')
  const found = said.findLast((line) => /^\S/.test(line) && telling.test(line)) ?? said.at(-1)
  return found === undefined ? null : found.trim().slice(0, maxChars)
}

/** The first process of a container is the engine's, which reports a command that it could not start. */
const notStarted = /^\[FATAL tini \(\d+\)\] exec (.{1,200}) failed: (.{1,100})$/
const reasons: Record<string, string> = {
  'Exec format error': 'it is built for another CPU architecture, or is a script that does not begin with #!',
  'No such file or directory': 'the image has no such file, or not the interpreter or loader that it names',
  'Permission denied': 'it is not executable',
}

/**
 * Whether this is the message for a program that was never started: from the engine, or from a shell that took `path`
 * for a script.
 */
export const isNotStarted = (path: string, lines: readonly string[]): boolean =>
  lines.some((line) => notStarted.test(line) || line.startsWith(`${path}: `))

/**
 * A sentence on how a program ended, with its own last line, marked as untrusted text. `why`: a whole sentence on why
 * it could not be started, if that is known.
 */
export const withLastWords = (message: string, lines: readonly string[], why?: string | null): string => {
  if (typeof why === 'string') return `${message} ${why}`
  const line = tellingLine(lines)
  if (line === null) return message
  const [, command, words] = notStarted.exec(line) ?? []
  if (words !== undefined) {
    const reason = reasons[words]
    return `${message} Its command ${command} cannot be started: ${words}${reason === undefined ? '' : ` (${reason})`}.`
  }
  return `${message} It said: ${line}`
}
