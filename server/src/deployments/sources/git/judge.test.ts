import assert from 'node:assert/strict'
import { test } from 'node:test'
import { filtersIn, hasFilters, refusalOf, skipWordIn } from './judge.ts'

const messages: [string, string | null][] = [
  ['a change', null],
  ['a change [skip ci]', '[skip ci]'],
  ['[CI Skip] a change', '[CI Skip]'],
  ['a change\n\n[no ci]', '[no ci]'],
  ['[skip deploy]', '[skip deploy]'],
  ['skip ci', null],
  ['[skip  ci]', null],
]

test('words in brackets, in any case and anywhere in the message, ask for no deployment', () => {
  for (const [message, word] of messages) assert.equal(skipWordIn(message), word, message)
})

const restrictions = (...all: string[]) => all.map((text) => ({ mode: text.split(' ')[0], value: text.split(' ')[1] }))

/** Root path, restrictions, changed paths, whether they concern the service. */
const cases: [string, string[], string[] | null, boolean][] = [
  ['/', [], ['a'], true],
  ['/', [], [], true],
  ['/', ['MATCH api/'], null, true],
  ['/', ['MATCH api/'], ['api/x'], true],
  ['/', ['MATCH api/'], ['apis/x', 'x/api/'], false],
  ['/', ['MATCH api'], ['apis/x'], true],
  ['/', ['MATCH api/', 'MATCH web/'], ['web/x'], true],
  ['/', ['MATCH api/'], [], false],
  ['/', ['EXCLUDE docs/'], ['docs/x', 'docs/y'], false],
  ['/', ['EXCLUDE docs/'], ['docs/x', 'y'], true],
  ['/', ['EXCLUDE docs/', 'EXCLUDE README'], ['docs/x', 'README.md'], false],
  ['/', ['EXCLUDE docs/'], [], false],
  ['/', ['MATCH api/', 'EXCLUDE api/docs/'], ['api/docs/x', 'web/y'], false],
  ['/', ['MATCH api/', 'EXCLUDE api/docs/'], ['api/docs/x', 'api/y'], true],
  ['/api', [], ['api/x'], true],
  ['/api', [], ['api'], true],
  ['/api', [], ['apis/x', 'web/api/x'], false],
  ['/api', [], [], true],
  ['/api/', ['MATCH shared/'], ['shared/x'], true],
  ['/api', ['MATCH shared/'], ['api/x'], false],
  ['/api', ['EXCLUDE api/docs/'], ['api/docs/x', 'web/y'], false],
  ['api', ['EXCLUDE api/docs/'], ['api/x'], true],
]

test('the root path and restrictions say which changes concern a service; unknown ones do', () => {
  for (const [root, kept, changes, concerns] of cases) {
    const filters = filtersIn({ deployment_restrictions: restrictions(...kept) }, root)
    assert.equal(refusalOf(filters, changes) === null, concerns, JSON.stringify([root, kept, changes]))
  }
  assert.deepEqual([hasFilters(filtersIn({}, '/')), hasFilters(filtersIn({}, '/api'))], [false, true])
})
