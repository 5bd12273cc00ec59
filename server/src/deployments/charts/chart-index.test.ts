import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseChartIndex } from './chart-index.ts'

test('names and versions are read with and without quotes and comments', () => {
  const text = `apiVersion: v1
entries:
  shop: # the shop
  - description: "a: b # c"
    version: 1.2.3 # the last one
  - version: "1.2.2"
  'other#1':
  - version: '2.0.0+a#b'
    digest: x
`
  assert.deepEqual(parseChartIndex(text), [
    { chart_name: 'shop', versions: ['1.2.3', '1.2.2'] },
    { chart_name: 'other#1', versions: ['2.0.0+a#b'] },
  ])
})

test('no index takes long to read, however it is written', () => {
  const wide = ' '.repeat(200_000)
  const start = performance.now()
  for (const value of [`x${wide}y`, `x${wide}#`, `x${'#'.repeat(200_000)}`, `${wide}x\u2028y`, `'${wide}`, wide])
    for (const line of [`  a: ${value}`, `  a:\n  - version: ${value}`, `entries: ${value}`, `  "${value}`])
      parseChartIndex(`entries:\n${line}\n`.repeat(3))
  assert.ok(performance.now() - start < 10_000)
})
