import assert from 'node:assert/strict'
import { test } from 'node:test'
import { BadWord } from './bad-word.ts'
import { findSecret, readMount, resolveMounts } from './run-mounts.ts'

const resolve = (...texts: string[]) => resolveMounts(texts.map(readMount), '/app', (text) => text.replace('$V', '/v'))

test('what is left out of a mount has the values that BuildKit gives it', () => {
  assert.deepEqual(resolve('target=x', 'type=cache,target=/c', 'type=secret,id=A', 'type=tmpfs,dst=/t,size=64m'), [
    { type: 'bind', index: 0, from: null, source: '.', target: '/app/x', isReadOnly: true },
    {
      ...{ type: 'cache', id: '/c', target: '/c', sharing: 'shared', isReadOnly: false },
      ...{ uid: 0, gid: 0, mode: 0o755 },
    },
    {
      ...{ type: 'secret', id: 'A', target: '/run/secrets/A', env: null, isRequired: false },
      ...{ uid: 0, gid: 0, mode: 0o400 },
    },
    { type: 'tmpfs', target: '/t', sizeBytes: 64 * 2 ** 20 },
  ])
})

test('other names, variables and flags are read', () => {
  assert.deepEqual(
    resolve(
      'type=bind,src=a/b,destination=$V/x,rw',
      'source=a,target=b,readonly=false',
      'type=secret,id=A,env=TOKEN,required',
    ).map((mount) => ('isReadOnly' in mount ? [mount.target, mount.isReadOnly] : mount)),
    [
      ['/v/x', false],
      ['/app/b', false],
      {
        ...{ type: 'secret', id: 'A', target: null, env: 'TOKEN', isRequired: true },
        ...{ uid: 0, gid: 0, mode: 0o400 },
      },
    ],
  )
})

const bad: [what: string, ...mounts: string[]][] = [
  ['the root', 'target=/'],
  ['the root by another way', 'target=../../..'],
  ['a place of the kernel', 'type=tmpfs,target=/x/../proc/self'],
  ['our own place', 'type=tmpfs,target=/dev/slipway-prelude'],
  ['a pattern', 'source=*,target=/x'],
  ['a variable in a path that COPY would expand', 'source=\\$HOME,target=/x'],
  ['one target twice', 'type=tmpfs,target=/x', 'type=cache,target=/x/.'],
  ['something inside of a cache', 'type=cache,target=/c', 'target=/c/x'],
  ['a cache with content', 'type=cache,target=/c,from=a'],
  ['a sharing that is not known', 'type=cache,target=/c,sharing=often'],
  ['a mode in letters', 'type=cache,target=/c,mode=rwx'],
  ['a number that is none', 'type=secret,id=a,uid=root'],
  ['a variable that is none', 'type=secret,id=a,env=A;B'],
  ['a size that is none', 'type=tmpfs,target=/t,size=lots'],
  ['nothing', 'type=cache'],
]

for (const [what, ...mounts] of bad)
  test(`a mount is refused: ${what}`, () => {
    assert.throws(() => resolve(...mounts), BadWord)
  })

test('a secret is the variable of its id, else one whose name a shell can have', () => {
  const all = { 'npm-token': '1', npm_token: '2', NPM_TOKEN: '3' }
  assert.equal(findSecret(all, 'npm-token'), '1')
  assert.equal(findSecret({ npm_token: '2', NPM_TOKEN: '3' }, 'npm-token'), '2')
  assert.equal(findSecret({ NPM_TOKEN: '3' }, 'npm.token'), '3')
  assert.equal(findSecret({ NPM_TOKEN: '3' }, 'npm'), undefined)
  assert.equal(findSecret({}, 'toString'), undefined)
})
