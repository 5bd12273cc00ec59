/** Comments, test titles and pages are plain English; what is not yet has a number for each folder that only falls. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import {
  type Budgets,
  budgetProblems,
  lowered,
  proseOf,
  strangeByFolder,
  strangeInProse,
} from './support/plain-words.ts'

const root = new URL('../../', import.meta.url).pathname

const strangeInFile = (path: string, ...lines: string[]): string[] =>
  proseOf({ path, text: `${lines.join('\n')}\n` }).flatMap((text) => strangeInProse(path, text))

test('phrases that are not plain English are found in comments, titles and pages', () => {
  const title = 'nobody reads a row of another organization'
  const noticed: [string, ...string[]][] = [
    ['server/src/x.ts', '/** Whoever is told', ' * of it. */'],
    ['server/src/x.ts', '/** Of a kind whose source is a module: its outputs. */'],
    ['server/src/x.ts', 'const a = 1 // the worker goes', '// on with the next'],
    ['server/src/x.test.ts', `test('${title}', () => {})`],
    ['server/src/x.test.ts', "test.each(\n  'the router tells what it serves', () => {})"],
    ['console/src/x.tsx', 'const a = <p>Empty: until\n  somebody unlocks it.</p>'],
    ['console/src/x.css', '/* What of it is shown. */'],
    ['bin/x', '#!/bin/sh', '# Whoever', '# runs it.'],
    ['docs/decisions/x.md', '# A', '', '- Of the two, one is chosen by its name.'],
    ['docs/decisions/x.md', 'It is no valid', 'name.'],
  ]
  for (const [path, ...lines] of noticed) assert.notDeepEqual(strangeInFile(path, ...lines), [], lines.join('\n'))
})

test('plain words, and code, pass', () => {
  const plain: [string, ...string[]][] = [
    ['server/src/x.ts', '/** Tells two replicas apart; `nobody` is a user. */', "const text = 'nobody goes on'"],
    ['server/src/x.test.ts', "test('the client resumes', () => assert.equal(user, 'nobody'))"],
    ['console/src/x.tsx', 'const a = <p>Lists the services that run.</p>'],
    ['bin/x', '#!/bin/sh', 'echo "whoever" # plain'],
    ['docs/decisions/x.md', 'Plain.', '```', 'whoever', '```'],
  ]
  for (const [path, ...lines] of plain) assert.deepEqual(strangeInFile(path, ...lines), [])
})

test('a budget works both ways, and is only lowered automatically', () => {
  assert.deepEqual(budgetProblems({ bin: 2, bench: 0 }, { bin: 2, bench: 0 }), [])
  assert.match(budgetProblems({ bin: 3 }, { bin: 2 }).join(), /rewrite/)
  assert.match(budgetProblems({ bin: 1 }, {}).join(), /rewrite/)
  assert.match(budgetProblems({ bin: 1 }, { bin: 2 }).join(), /lower the budget to 1/)
  assert.match(budgetProblems({}, { gone: 0 }).join(), /remove/)
  assert.deepEqual(lowered({ bin: 1, bench: 5, docs: 1 }, { bin: 2, bench: 4, gone: 9 }), { bench: 4, bin: 1, docs: 0 })
})

test('no folder has more strange phrases than its budget (node bin/plain-words.ts FOLDER lists them)', () => {
  const budgets: Budgets = JSON.parse(readFileSync(new URL('cases/plain-words.json', import.meta.url), 'utf8'))
  const counts = Object.fromEntries([...strangeByFolder(root)].map(([folder, found]) => [folder, found.length]))
  assert.deepEqual(budgetProblems(counts, budgets), [])
})
