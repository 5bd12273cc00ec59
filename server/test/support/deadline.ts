/**
 * Imported by `bin/test` into every test file: one that has not ended after ten minutes (an hour each night) is ended, and
 * says what holds it. A load or a connection that a failed test left behind would otherwise hold up all of them.
 */
const longestMinutes = process.env.SLIPWAY_TEST_ALL === '1' ? 60 : 10

const end = (): never => {
  const [, file = 'a test file'] = process.argv
  const holding = process.getActiveResourcesInfo().join(', ')
  process.stderr.write(`${file} has not ended after ${longestMinutes} minutes. What holds it: ${holding}\n`)
  process.exit(1)
}

setTimeout(end, longestMinutes * 60_000).unref()
