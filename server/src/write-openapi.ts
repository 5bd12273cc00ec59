/** Writes openapi.json; with `--check` only says whether it is what the operations say now. */
import { readFile, writeFile } from 'node:fs/promises'
import { describe } from './api/openapi.ts'
import { operations } from './resources/index.ts'

const file = new URL('../../openapi.json', import.meta.url)
const text = `${JSON.stringify(describe(operations), null, 2)}\n`

if (process.argv.includes('--check')) {
  const committed = await readFile(file, 'utf8').catch(() => '')
  if (committed !== text) {
    process.stderr.write('openapi.json is not what the operations say: run server/src/write-openapi.ts\n')
    process.exit(1)
  }
} else {
  await writeFile(file, text)
}
