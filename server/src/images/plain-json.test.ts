import assert from 'node:assert/strict'
import test from 'node:test'
import { parsePlainJson } from './plain-json.ts'

const names = ['layers', 'digest', 'mediaType']

test('JSON that is read in one way only is parsed as it is', () => {
  for (const text of [
    '{"layers":[{"digest":"a"},{"digest":"b"}],"mediaType":"x"}',
    '{ "annotations" : { "org.example/Name": "\\"layers\\": [1]", "a": {} } }',
    '{"layers": [], "text": "a \\\\", "digest": "}"}',
    '[]',
  ])
    assert.deepEqual(parsePlainJson(text, names), JSON.parse(text), text)
})

test('a name in another case, outside of ASCII or twice is refused, for the engine could read another one', () => {
  for (const text of [
    '{"layers":[],"Layers":[{"urls":["http://127.0.0.1/"]}]}',
    '{"LAYERS":[]}',
    '{"layer\\u017f":[]}',
    '{"layerſ":[]}',
    '{"layers":[1],"layers":[]}',
    '{"layers":[],"layer\\u0073":[]}',
    '{"a":{"digest":"x","digest":"y"}}',
    '{"layers":[{"Digest":"x"}]}',
    'nothing',
  ])
    assert.equal(parsePlainJson(text, names), null, text)
})

test('texts with more or deeper values than a manifest has are refused', () => {
  const deep = `${'['.repeat(5000)}${']'.repeat(5000)}`
  assert.equal(parsePlainJson(deep, names), null)
  assert.equal(parsePlainJson(`{"a":[${'1,'.repeat(300_000)}1]}`, names), null)
  assert.ok(parsePlainJson(`{"a":[${'1,'.repeat(10_000)}1]}`, names) !== null)
})
