/** Writes openapi.json; with `--check` it only reports whether the file is up to date. */
import { readFile, writeFile } from 'node:fs/promises'
import { describe } from '../api/operations/openapi.ts'
import { operations } from '../resources/index.ts'

const file = new URL('../../../openapi.json', import.meta.url)

/** One line per path and schema: small, and a diff still shows what changed. */
const write = (value: unknown, depth: number): string => {
  if (depth === 0 || value === null || typeof value !== 'object' || Array.isArray(value)) return JSON.stringify(value)
  const fields = Object.entries(value).map(([name, inner]) => `${JSON.stringify(name)}: ${write(inner, depth - 1)}`)
  return `{\n${fields.join(',\n')}\n}`
}

const text = `${write(describe(operations), 3)}\n`

if (process.argv.includes('--check')) {
  const committed = await readFile(file, 'utf8').catch(() => '')
  if (committed !== text) {
    process.stderr.write('openapi.json does not match the operations: npm run fix writes it\n')
    process.exit(1)
  }
} else {
  await writeFile(file, text)
}
