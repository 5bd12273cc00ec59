/**
 * Writes what the guides say of fields: docs/guides/fields.md, and the table in docs/guides/kubernetes.md. With `--check`
 * it only reports whether both are up to date.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { fieldGuide } from '../api/operations/field-table.ts'
import { kubernetesGuideTable } from '../api/operations/kubernetes-table.ts'
import { operations } from '../resources/index.ts'
import { kubernetesAbilities } from '../runtimes/kubernetes/runtime.ts'

const [begin, end] = ['<!-- made from the table in the code: write-fields.ts -->\n', '\n<!-- end of the table -->']

/** The text with another part between the two marks. */
const withPart = (text: string, part: string): string => {
  const [before, after] = [text.split(begin)[0]!, text.split(end).at(-1)!]
  return before + begin + part + end + after
}

const guides: [string, (committed: string) => string][] = [
  ['fields', () => fieldGuide(operations)],
  ['kubernetes', (committed) => withPart(committed, kubernetesGuideTable(kubernetesAbilities))],
]

for (const [name, made] of guides) {
  const file = new URL(`../../../docs/guides/${name}.md`, import.meta.url)
  const committed = await readFile(file, 'utf8').catch(() => '')
  const text = made(committed)
  if (!process.argv.includes('--check')) await writeFile(file, text)
  else if (committed !== text) {
    process.stderr.write(`docs/guides/${name}.md does not match the code: npm run fix writes it\n`)
    process.exit(1)
  }
}
