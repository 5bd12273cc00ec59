/** Writes docs/guides/fields.md; with `--check` it only reports whether the file is up to date. */
import { readFile, writeFile } from 'node:fs/promises'
import { fieldGuide } from '../api/operations/field-table.ts'
import { operations } from '../resources/index.ts'

const file = new URL('../../../docs/guides/fields.md', import.meta.url)
const text = fieldGuide(operations)

if (process.argv.includes('--check')) {
  const committed = await readFile(file, 'utf8').catch(() => '')
  if (committed !== text) {
    process.stderr.write('docs/guides/fields.md does not match the schemas: run server/src/programs/write-fields.ts\n')
    process.exit(1)
  }
} else {
  await writeFile(file, text)
}
