/**
 * `node bin/plain-words.ts [FOLDER|FILE]` lists the phrases that server/test/plain-words.test.ts counts, there or
 * everywhere; with `--lower`, it lowers the budgets to what is left. It never raises one.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { type Budgets, lowered, strangeByFolder } from '../server/test/support/plain-words.ts'

const file = new URL('../server/test/cases/plain-words.json', import.meta.url)
const found = strangeByFolder(new URL('../', import.meta.url).pathname)
const [argument = ''] = process.argv.slice(2)

if (argument === '--lower') {
  const budgets: Budgets = JSON.parse(readFileSync(file, 'utf8'))
  const counts = Object.fromEntries([...found].map(([folder, hits]) => [folder, hits.length]))
  writeFileSync(file, `${JSON.stringify(lowered(counts, budgets), null, 2)}\n`)
} else {
  for (const hit of [...found.values()].flat().filter((hit) => hit.startsWith(argument))) console.log(hit)
}
