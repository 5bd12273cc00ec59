import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { commandOf, configAfter, type ImageConfig, stepWords, withArgs } from './image-config.ts'

const image = (Config: ImageConfig) => ({ Id: 'sha256:x', Os: 'linux', Architecture: 'amd64', Config })

test('arguments reach the command as they are, whatever is in them', () => {
  const value = `it's "$HOME" \`id\` \\ \n end`
  const [file, ...rest] = withArgs(
    ['/bin/sh', '-c', 'printf %s "$A|$B|$1"', 'sh', "it's"],
    [
      ['A', value],
      ['B', ''],
    ],
  )
  const { stdout } = spawnSync(file!, rest, { env: {}, encoding: 'utf8' })
  assert.equal(stdout, `${value}||it's`)
  assert.deepEqual(withArgs(['a'], []), ['a'])
})

test('a shell command is the image’s own shell’s', () => {
  assert.deepEqual(stepWords(null, 'x y', image({})), ['/bin/sh', '-c', 'x y'])
  assert.deepEqual(stepWords(null, 'x', image({ Shell: ['/bin/bash', '-ec'] })), ['/bin/bash', '-ec', 'x'])
  assert.deepEqual(stepWords(['a', 'b'], 'x', image({ Shell: ['/bin/bash'] })), ['a', 'b'])
})

const kept: [what: string, before: ImageConfig, container: object, after: object][] = [
  ['a command alone', { Cmd: ['sh'] }, { Entrypoint: null, Cmd: ['r'] }, { Entrypoint: null, Cmd: ['sh'] }],
  ['an entrypoint', { Entrypoint: ['e'] }, { Entrypoint: ['r'], Cmd: null }, { Entrypoint: ['e'], Cmd: null }],
  ['both', { Entrypoint: ['e'], Cmd: ['c'] }, { Entrypoint: ['r'], Cmd: null }, { Entrypoint: ['e'], Cmd: ['c'] }],
  ['neither', {}, { Entrypoint: ['r'], Cmd: null }, { Entrypoint: [], Cmd: null }],
]

for (const [what, before, container, after] of kept)
  test(`a step leaves what the image starts: ${what}`, () => {
    assert.deepEqual(commandOf(image(before), ['r']), container)
    const { Entrypoint, Cmd } = configAfter(image(before))
    assert.deepEqual({ Entrypoint, Cmd }, after)
  })
