/**
 * Imported by `bin/test` into every test file: one that has not ended after a quarter of an hour is ended, and says what
 * holds it. A load or a connection that a failed test left behind would otherwise hold up all of them.
 */
const longestMs = 900_000

const end = (): never => {
  const [, file = 'a test file'] = process.argv
  const holding = process.getActiveResourcesInfo().join(', ')
  process.stderr.write(`${file} has not ended after ${longestMs / 60_000} minutes. What holds it: ${holding}\n`)
  process.exit(1)
}

setTimeout(end, longestMs).unref()
