/** A reporter for `bin/test`: the files with a failed test, a line each; at the end how many tests passed, `# pass 7`. */
import type { TestEvent } from 'node:test/reporters'
import { fileURLToPath } from 'node:url'

const pathOf = (file: string): string => (file.startsWith('file:') ? fileURLToPath(file) : file)

export default async function* failedFiles(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const told = new Set<string>()
  for await (const { type, data } of events) {
    if (type === 'test:summary' && data.file === undefined) {
      // The types have forgotten one of them.
      const { passed, failed, cancelled, skipped } = data.counts as typeof data.counts & { failed: number }
      yield `# pass ${passed}\n# fail ${failed}\n# cancelled ${cancelled}\n# skipped ${skipped}\n`
    }
    if (type !== 'test:fail') continue
    // A file that ends without a result is itself the failed test.
    const file = pathOf(data.file ?? data.name)
    if (told.has(file)) continue
    told.add(file)
    yield `${file}\n`
  }
}
