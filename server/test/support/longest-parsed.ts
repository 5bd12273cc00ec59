/** How long the longest text is that the thread of a test has given to `JSON.parse` since. */
import type { TestContext } from 'node:test'

/** Begins at once, and ends with the test. The returned function says how long it was, in characters; 0 without any. */
export const longestParsed = (t: TestContext): (() => number) => {
  const { parse } = JSON
  let longest = 0
  t.mock.method(JSON, 'parse', (text: string, reviver?: Parameters<typeof parse>[1]) => {
    longest = Math.max(longest, text.length)
    return parse(text, reviver)
  })
  return () => longest
}
