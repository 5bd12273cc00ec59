/** Of what a program printed before it failed: the line that says most likely why. */
const telling = /error|fatal|panic|exception|cannot|can't|failed|refused|denied|must|missing|not found|no such|in use/i
const maxChars = 200

/** Null when it said nothing. */
export const tellingLine = (lines: readonly string[]): string | null => {
  const said = lines.filter((line) => line.trim() !== '')
  const found = said.findLast((line) => /^\S/.test(line) && telling.test(line)) ?? said.at(-1)
  return found === undefined ? null : found.trim().slice(0, maxChars)
}
