import assert from 'node:assert/strict'
import { test } from 'node:test'
import { baseImages, declaredArgs, parseDockerfile, pickBuildArgs } from './dockerfile.ts'

const cases: { what: string; text: string; args: string[]; bases: string[]; target?: string; given?: object }[] = [
  { what: 'a plain file', text: 'FROM busybox:1\nRUN true\n', args: [], bases: ['busybox:1'] },
  { what: 'nothing', text: '', args: [], bases: [] },
  { what: 'ARG in every place', text: 'ARG A=1\nFROM x\narg B\nARG C=3 D', args: ['A', 'B', 'C', 'D'], bases: ['x'] },
  { what: 'a global default', text: 'ARG V=24\nFROM node:$V', args: ['V'], bases: ['node:24'] },
  { what: 'a given value', text: 'ARG V=24\nFROM node:${V}', args: ['V'], bases: ['node:20'], given: { V: '20' } },
  { what: 'a default in place', text: 'ARG V\nFROM node:${V:-22}', args: ['V'], bases: ['node:22'] },
  { what: 'an alternative', text: 'ARG V=1\nFROM node${V:+-slim}', args: ['V'], bases: ['node-slim'] },
  { what: 'defaults of defaults', text: 'ARG A=1\nARG B=x$A\nFROM $B', args: ['A', 'B'], bases: ['x1'] },
  { what: 'stages', text: 'FROM a AS One\nFROM one\nFROM b as two', args: [], bases: ['a', 'b'] },
  { what: 'a target', text: 'FROM a AS one\nFROM b AS two', args: [], bases: ['a'], target: 'ONE' },
  { what: 'a target by number', text: 'FROM a\nFROM b', args: [], bases: ['a'], target: '0' },
  { what: 'scratch', text: 'FROM scratch\nCOPY --from=nginx:1 /a /b', args: [], bases: ['nginx:1'] },
  {
    what: 'copies of stages',
    text: 'FROM a AS b\nFROM c\nCOPY --from=b x y\nCOPY --from=0 x y',
    args: [],
    bases: ['a', 'c'],
  },
  { what: 'a platform', text: 'FROM --platform=linux/amd64 a AS b', args: [], bases: ['a'] },
  { what: 'comments', text: '# ARG X\nFROM a\n  # ARG Y\nRUN echo ARG Z', args: [], bases: ['a'] },
  { what: 'continued lines', text: 'FROM \\\n # note\n a\nARG \\\nB=1', args: ['B'], bases: ['a'] },
  { what: 'another escape', text: '# escape=`\nFROM a\nARG `\nB', args: ['B'], bases: ['a'] },
  { what: 'Windows line ends', text: 'FROM a\r\nARG B\r\n', args: ['B'], bases: ['a'] },
  { what: 'quotes', text: 'ARG "A=b c"\nFROM "x"\nARG B="d e"', args: ['A', 'B'], bases: ['x'] },
  { what: 'a command that only looks like ARG', text: 'FROM a\nRUN x \\\n  ARG B', args: [], bases: ['a'] },
]

for (const { what, text, args, bases, target, given } of cases)
  test(`a Dockerfile with ${what}`, () => {
    const file = parseDockerfile(text)
    assert.deepEqual(declaredArgs(file), args)
    assert.deepEqual(baseImages(file, (given ?? {}) as Record<string, string>, target ?? null), bases)
  })

test('only declared variables are passed on, sorted, and names of Object.prototype are nobody', () => {
  const file = parseDockerfile('FROM a\nARG B\nARG A\nARG toString\nARG C')
  assert.deepEqual(pickBuildArgs(file, { A: '1', B: '2', SECRET: 'x' }), { A: '1', B: '2' })
})

test('an ADD that the engine would fetch itself is told, however it is written', () => {
  const remote = [
    'ADD http://127.0.0.1/x /x',
    'add --chown=1:1 https://h/x /x',
    'ADD ["https://h/x", "/x"]',
    'AD\\\nD ht\\\ntp://h/x /x',
    'ADD http:\\\n//h/x /x',
    'RUN echo \\\\\nADD http://h/x /x',
    '# escape=`\nADD http:`\n//h/x /x',
    'ADD git@h:a/b.git /x',
    'ARG U\nADD $U /x',
    'ONBUILD ADD http://h/x /x',
  ]
  for (const text of remote)
    assert.equal(parseDockerfile(`${text.startsWith('#') ? '' : 'FROM a\n'}${text}`).addsRemote, true, text)
  for (const text of ['ADD a.tar /x', 'ADD a b /x/$V', 'COPY a /x', 'RUN wget http://h/x'])
    assert.equal(parseDockerfile(`FROM a\n${text}`).addsRemote, false, text)
})
