/** A reporter for `bin/test`: the files with a failed test, a line each. */
import type { TestEvent } from 'node:test/reporters'
import { fileURLToPath } from 'node:url'

const pathOf = (file: string): string => (file.startsWith('file:') ? fileURLToPath(file) : file)

export default async function* failedFiles(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const told = new Set<string>()
  for await (const { type, data } of events) {
    if (type !== 'test:fail') continue
    // A file that ends without a result is itself the failed test.
    const file = pathOf(data.file ?? data.name)
    if (told.has(file)) continue
    told.add(file)
    yield `${file}\n`
  }
}
