import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { type FileContent, type GitServer, startGitServer } from '../../../test/support/peers/git-server.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { createLog } from '../../lib/log.ts'
import { createOutbound } from '../../lib/net/outbound.ts'
import { Secret } from '../../lib/secret.ts'
import { systemClock } from '../../lib/time/clock.ts'
import type { GitSource } from '../builder.ts'
import { openGitPlace, removeGitPlace } from '../git/place.ts'
import { createGit } from '../git/process.ts'
import { isInside, submoduleUrl } from '../git/submodule-names.ts'
import { createMirrors } from './mirrors.ts'

const never = new AbortController().signal
const auth = { username: 'x', password: 'the token' }
const open = await startGitServer()
const closed = await startGitServer({ auth })
const otherClosed = await startGitServer({ auth })
const folder = mkdtempSync(join(tmpdir(), 'slipway-submodules-'))
const place = await openGitPlace(folder, createLog('silent'))
const git = createGit(place)
const mirrors = createMirrors({
  git,
  folder: place.mirrors,
  template: place.template,
  network: createOutbound({ allow: ['loopback'] }),
  clock: systemClock,
  log: createLog('silent'),
})
after(async () => {
  await mirrors.close()
  for (const server of [open, closed, otherClosed]) await server.close()
  await removeGitPlace(folder)
  rmSync(folder, { recursive: true, force: true })
})

let made = 0
const create = async (server: GitServer, files: Record<string, FileContent>): Promise<[name: string, id: string]> => {
  made += 1
  await server.createRepository(`r${made}`)
  return [`r${made}`, await server.commit(`r${made}`, files, 'First')]
}

/** Another commit of the branch with submodules right at the top or one folder below. */
const link = async (server: GitServer, name: string, links: Record<string, string>): Promise<string> => {
  const list = async (tree: string) =>
    (await server.git(name, ['ls-tree', tree])).split('\n').filter((line) => line !== '')
  const write = (lines: readonly string[]) => server.git(name, ['mktree'], `${lines.join('\n')}\n`)
  const top = await list('main')
  const below = Map.groupBy(Object.entries(links), ([path]) => (path.includes('/') ? path.split('/')[0]! : ''))
  for (const [parent, entries] of below) {
    const lines = entries.map(([path, id]) => `160000 commit ${id}\t${path.split('/').at(-1)}`)
    if (parent === '') top.push(...lines)
    else top.push(`040000 tree ${await write(lines)}\t${parent}`)
  }
  const id = await server.git(name, ['commit-tree', await write(top), '-p', 'main', '-m', 'Linked'])
  await server.git(name, ['update-ref', 'refs/heads/main', id])
  return id
}

const modules = (all: Record<string, string>): string =>
  Object.entries(all)
    .map(([path, url]) => `[submodule "${path}"]\n\tpath = ${path}\n\turl = ${url}\n`)
    .join('')

const part = { rootPath: '/', dockerfilePath: 'Dockerfile', isWhole: true, skipSubmodules: false }

/** The files that a build would get, and what the log says. */
const contentOf = async (source: GitSource) => {
  const { git_commit_id: id } = await mirrors.fetch(source, never)
  let log = ''
  const say = (text: string) => {
    log += text
  }
  await mirrors.fetchContent(source, id, part, say, never)
  const content = await mirrors.contentOf(source, id, part)
  const args = ['--git-dir', mirrors.mirrorOf(source), 'ls-tree', '-r', '--name-only', content]
  return { files: (await git.run(args)).stdout.trim().split('\n'), log, content, id }
}
const from = (server: GitServer, name: string, more: Partial<GitSource> = {}): GitSource => ({
  organizationId: 'an organization',
  url: server.url(name),
  branch: 'main',
  ...more,
})

test('files of submodules are in place, nested ones too, whatever their depth and the form of their URL', async () => {
  const [leaf, leafId] = await create(open, { 'leaf.txt': 'leaf' })
  const [middle] = await create(open, { 'middle.txt': 'm', '.gitmodules': modules({ leaf: `./../${leaf}.git` }) })
  const middleId = await link(open, middle, { leaf: leafId })
  const all = { 'libs/middle': `../${middle}.git`, top: open.url(leaf) }
  const [name] = await create(open, { 'a.txt': 'a', '.gitmodules': modules(all), '.gitattributes': '*.bin filter=lfs' })
  await link(open, name, { 'libs/middle': middleId, top: leafId })
  const first = await contentOf(from(open, name))
  assert.deepEqual(first.files.sort(), [
    '.gitattributes',
    '.gitmodules',
    'a.txt',
    'libs/middle/.gitmodules',
    'libs/middle/leaf/leaf.txt',
    'libs/middle/middle.txt',
    'top/leaf.txt',
  ])
  assert.match(first.log, /Fetching the submodule libs\/middle at [0-9a-f]{12}\./)
  assert.equal((await contentOf(from(open, name))).content, first.content)
})

test('a commit without submodules is its own content', async () => {
  const [name] = await create(open, { 'a.txt': 'a' })
  const { content, id, log } = await contentOf(from(open, name))
  assert.deepEqual([content, log], [id, ''])
})

test('credentials go to submodules of the same host alone', async () => {
  const credentials = new Secret(auth)
  const [own, ownId] = await create(closed, { 'own.txt': '' })
  const [foreign, foreignId] = await create(otherClosed, { 'foreign.txt': '' })
  const [name] = await create(closed, { '.gitmodules': modules({ own: `../${own}.git` }) })
  await link(closed, name, { own: ownId })
  assert.deepEqual((await contentOf(from(closed, name, { credentials }))).files, ['.gitmodules', 'own/own.txt'])
  const [bad] = await create(closed, { '.gitmodules': modules({ foreign: otherClosed.url(foreign) }) })
  await link(closed, bad, { foreign: foreignId })
  await assert.rejects(contentOf(from(closed, bad, { credentials })), (error: unknown) => {
    assert.ok(error instanceof DeploymentError)
    assert.deepEqual([error.code, /submodule foreign/.test(error.message)], ['git_denied', true])
    return true
  })
})

test('a submodule that is named for SSH is fetched by the address of the same host, with the token of that alone', async () => {
  const parent = 'https://git.example:8443/team/app.git'
  const cases = [
    ['git@git.example:team/lib.git', 'https://git.example:8443/team/lib.git'],
    ['git@GIT.example:/team/lib.git', 'https://git.example:8443/team/lib.git'],
    ['ssh://git@git.example:2222/team/lib.git', 'https://git.example:8443/team/lib.git'],
    ['git@other.example:team/lib.git', 'https://other.example/team/lib.git'],
    ['ssh://git@other.example/team/lib.git', 'https://other.example/team/lib.git'],
  ] as const
  for (const [url, address] of cases) assert.equal(submoduleUrl(parent, url), address)
  const credentials = new Secret(auth)
  const [own, ownId] = await create(closed, { 'own.txt': '' })
  const [name] = await create(closed, { '.gitmodules': modules({ own: `git@127.0.0.1:${own}.git` }) })
  await link(closed, name, { own: ownId })
  assert.deepEqual((await contentOf(from(closed, name, { credentials }))).files, ['.gitmodules', 'own/own.txt'])
})

const hostileUrls = [
  'file:///etc',
  '/etc',
  'ext::sh -c id',
  'ssh://root@h/a',
  'ssh://git@h:x/a',
  'ssh://git@-oProxyCommand=id/a',
  'git@-oProxyCommand=id:a',
  'git@h:a/../b',
  'git@h:a?b',
  'git@user:word@h:a',
  'root@h:a/b',
  'git://h/a',
  '-x',
  '--upload-pack=id',
  'https://user:word@h/a',
  'https://h/a?b',
  '../../../a',
  './../../..//a',
  '../a/../../b',
  '../%2e%2e/a',
]

test('nothing but a plain address is taken from .gitmodules, and nothing outside of the repository', async () => {
  for (const url of hostileUrls) assert.equal(submoduleUrl('https://h.example/one/two', url), null, url)
  assert.equal(submoduleUrl('https://h.example/one/two.git', '../a.git'), 'https://h.example/one/a.git')
  assert.equal(submoduleUrl('https://h.example/one/two/', '../../a'), 'https://h.example/a')
  for (const path of ['../a', '/etc', 'a/../b', 'a//b', '.git', 'a/.GIT/hooks', 'a\\b', 'a\nb', ''])
    assert.equal(isInside(path), false, path)
  const [target, id] = await create(open, { x: '' })
  for (const [path, url] of [
    ['x', 'ext::sh -c id'],
    ['../x', open.url(target)],
  ] as const) {
    const [name] = await create(open, { '.gitmodules': modules({ [path]: url }) })
    await link(open, name, { x: id })
    await assert.rejects(contentOf(from(open, name)), { code: 'git_refused' })
  }
})

test('a submodule of itself ends at the cap', async () => {
  const [name] = await create(open, { '.gitmodules': '' })
  await open.commit(name, { '.gitmodules': modules({ again: open.url(name) }) }, 'Second')
  let id = await open.git(name, ['rev-parse', 'main'])
  for (let depth = 0; depth < 6; depth += 1) {
    const tree = await open.git(
      name,
      ['mktree'],
      `${await open.git(name, ['ls-tree', 'main', '.gitmodules'])}\n160000 commit ${id}\tagain\n`,
    )
    id = await open.git(name, ['commit-tree', tree, '-p', 'main', '-m', String(depth)])
    await open.git(name, ['update-ref', 'refs/heads/main', id])
  }
  await assert.rejects(contentOf(from(open, name)), /At most 100 submodules, nested 4 deep/)
})
