import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, beforeEach, test } from 'node:test'
import { type FileContent, type GitServer, startGitServer } from '../../../test/support/peers/git-server.ts'
import { type Asked, createLfsServer, listenLfs } from '../../../test/support/peers/lfs-server.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { createLog } from '../../lib/log.ts'
import { createOutbound } from '../../lib/net/outbound.ts'
import { Secret } from '../../lib/secret.ts'
import { systemClock } from '../../lib/time/clock.ts'
import type { GitSource } from '../builder.ts'
import { internalUrlOf } from '../git/names.ts'
import { openGitPlace, removeGitPlace } from '../git/place.ts'
import { createGit } from '../git/process.ts'
import { createMirrors, type MirrorParts } from '../mirrors/mirrors.ts'
import type { ContentPart } from './complete.ts'
import { lfsEndpoint } from './fetch.ts'
import { parsePointer } from './pointer.ts'

const never = new AbortController().signal
const auth = { username: 'x', password: 'the-token' }
const sent = `Basic ${Buffer.from('x:the-token').toString('base64')}`
const [lfs, storage] = [createLfsServer(), createLfsServer()]
const open = await startGitServer({ lfs: lfs.handle })
const closed = await startGitServer({ lfs: lfs.handle, auth })
const bare = await startGitServer()
const elsewhere = await listenLfs(storage)
const folder = mkdtempSync(join(tmpdir(), 'slipway-lfs-'))
const place = await openGitPlace(folder, createLog('silent'))
const git = createGit(place)
const mirrorsWith = (more: Partial<MirrorParts> = {}) =>
  createMirrors({
    ...{ git, folder: place.mirrors, template: place.template, clock: systemClock, log: createLog('silent') },
    network: createOutbound({ allow: ['loopback'] }),
    ...more,
  })
const mirrors = mirrorsWith()
after(async () => {
  await mirrors.close()
  for (const server of [open, closed, bare, elsewhere]) await server.close()
  await removeGitPlace(folder)
  rmSync(folder, { recursive: true, force: true })
})
beforeEach(() => {
  for (const server of [lfs, storage]) {
    server.requests.length = 0
    server.answer = Object.assign(server.answer, { batch: undefined, object: undefined })
  }
})

const attributes = { '.gitattributes': '*.bin filter=lfs diff=lfs merge=lfs -text\n' }
let made = 0
const create = async (server: GitServer, files: Record<string, FileContent>): Promise<GitSource> => {
  made += 1
  await server.createRepository(`r${made}`)
  await server.commit(`r${made}`, { Dockerfile: 'FROM scratch\n', ...attributes, ...files }, 'First')
  return { organizationId: 'an organization', url: server.url(`r${made}`), branch: 'main' }
}

const usual: ContentPart = { rootPath: '/', dockerfilePath: 'Dockerfile', isWhole: false, skipSubmodules: false }

/** The commit that a build would read, and what the log says. */
const contentOf = async (source: GitSource, part: Partial<ContentPart> = {}, from = mirrors) => {
  const { git_commit_id: id } = await from.fetch(source, never)
  const wanted = { ...usual, ...part }
  let log = ''
  const say = (text: string) => {
    log += text
  }
  await from.fetchContent(source, id, wanted, say, never)
  const content = await from.contentOf(source, id, wanted)
  const mirror = ['--git-dir', from.mirrorOf(source)]
  const read = async (path: string) => (await git.run([...mirror, 'cat-file', 'blob', `${content}:${path}`])).stdout
  const modes = async () => (await git.run([...mirror, 'ls-tree', '-r', '-z', content])).stdout
  return { id, content, log, read, modes }
}

const refusal = async (work: Promise<unknown>): Promise<DeploymentError> => {
  const error = await work.then(
    () => assert.fail('nothing was refused'),
    (thrown: unknown) => thrown,
  )
  assert.ok(error instanceof DeploymentError, String(error))
  return error
}

test('files of Git LFS are in place of their pointers, with their modes and names, and are fetched once', async () => {
  const source = await create(open, {
    'a.bin': lfs.pointer('one'),
    'deep/ü "x".bin': lfs.pointer('one'),
    'run.bin': { text: lfs.pointer('#!/bin/sh\n'), mode: '100755' },
    'large.bin': lfs.pointer(Buffer.alloc(40 << 20, 'x')),
    'empty.bin': lfs.pointer(''),
    'about.txt': lfs.pointer('an example in the documentation'),
  })
  const first = await contentOf(source)
  assert.deepEqual(
    [await first.read('a.bin'), await first.read('deep/ü "x".bin'), await first.read('empty.bin')],
    ['one', 'one', ''],
  )
  assert.match(await first.modes(), /100755 blob \w+\trun\.bin\0/)
  // Without the attribute, git leaves a pointer alone.
  assert.notEqual(parsePointer(Buffer.from(await first.read('about.txt'))), null)
  assert.match(first.log, /^Fetching 4 files of Git LFS \(40 MB\)\.$/m)
  assert.equal(lfs.requests.length, 5, lfs.requests.join('\n'))
  const second = await contentOf(source)
  assert.deepEqual([second.content, second.log, lfs.requests.length], [first.content, '', 5])
})

test('what a build does not read is not fetched', async () => {
  const missing = lfs.pointer('not there')
  lfs.objects.delete(parsePointer(Buffer.from(missing))!.oid)
  const source = await create(open, {
    'app/Dockerfile': 'FROM scratch\n',
    'app/.dockerignore': 'big\n',
    'app/big/a.bin': missing,
    'app/here.bin': lfs.pointer('here'),
    'other/a.bin': missing,
  })
  const part = { rootPath: '/app' }
  assert.equal(await (await contentOf(source, part)).read('app/here.bin'), 'here')
  const whole = await refusal(contentOf(source, { isWhole: true }))
  assert.match(whole.message, /^The file "(app\/big|other)\/a\.bin" is stored with Git LFS and could not be fetched: /)
  const plain = await create(open, { 'a.bin': missing, '.gitattributes': '*.txt text\n' })
  const { content, id } = await contentOf(plain)
  assert.equal(content, id)
})

test('the token goes to the origin of the repository alone', async () => {
  const source = { ...(await create(closed, { 'a.bin': lfs.pointer('secret') })), credentials: new Secret(auth) }
  await contentOf(source)
  assert.deepEqual(
    lfs.requests.map((line) => line.replace(/^(\w+) \S+ /, '$1 ')),
    [`POST ${sent}`, `GET ${sent}`],
  )
  const signed = { ...(await create(closed, { 'a.bin': lfs.pointer('signed') })), credentials: new Secret(auth) }
  storage.pointer('signed')
  lfs.answer.batch = (asked) => {
    const [{ oid, size }] = asked as [Asked]
    const header = { Authorization: 'Storage abc', Host: 'evil', 'X-Bad\n': 'x' }
    return [{ oid, size, actions: { download: { href: `${elsewhere.origin}/objects/${oid}?x=1`, header } } }]
  }
  storage.answer.object = (_, response) => {
    response.writeHead(302, { location: `${bare.origin}/stolen` }).end()
  }
  bare.requests.length = 0
  await refusal(contentOf(signed))
  assert.match(storage.requests[0]!, / Storage abc$/)
  assert.equal(bare.requests.length, 1)
  storage.requests.length = 0
  storage.answer.object = (_, response) => void response.end('signed')
  assert.equal(await (await contentOf(signed)).read('a.bin'), 'signed')
  lfs.answer.batch = (asked) =>
    asked.map(({ oid, size }) => ({ oid, size, actions: { download: { href: `${elsewhere.origin}/objects/${oid}` } } }))
  const open2 = { ...(await create(closed, { 'a.bin': lfs.pointer('signed2') })), credentials: new Secret(auth) }
  storage.requests.length = 0
  storage.answer.object = (_, response) => void response.end('signed2')
  await contentOf(open2)
  assert.match(storage.requests[0]!, / none$/)
})

test('the LFS server of .lfsconfig is used, and a submodule has its own', async () => {
  const url = `${elsewhere.origin}/team/assets`
  const source = {
    ...(await create(closed, { 'a.bin': storage.pointer('from elsewhere'), '.lfsconfig': `[lfs]\n\turl = ${url}/\n` })),
    credentials: new Secret(auth),
  }
  assert.equal(await (await contentOf(source)).read('a.bin'), 'from elsewhere')
  assert.deepEqual(storage.requests[0], 'POST /team/assets/objects/batch none')
  assert.equal(lfs.requests.length, 0)

  const leaf = await create(open, { 'leaf.bin': lfs.pointer('leaf') })
  const leafId = await open.git(`r${made}`, ['rev-parse', 'main'])
  const modules = `[submodule "lib"]\n\tpath = lib\n\turl = ${leaf.url}\n`
  const parent = await create(open, { '.gitmodules': modules, 'top.bin': lfs.pointer('top') })
  const tree = await open.git(
    `r${made}`,
    ['mktree'],
    `${await open.git(`r${made}`, ['ls-tree', 'main'])}\n160000 commit ${leafId}\tlib\n`,
  )
  const linked = await open.git(`r${made}`, ['commit-tree', tree, '-m', 'Linked'])
  await open.git(`r${made}`, ['update-ref', 'refs/heads/main', linked])
  const { read } = await contentOf(parent)
  assert.deepEqual([await read('top.bin'), await read('lib/leaf.bin')], ['top', 'leaf'])
  assert.ok(lfs.requests.some((line) => line.startsWith(`POST ${new URL(leaf.url).pathname}/info/lfs/objects/batch`)))
})

test('what cannot be fetched refuses the deployment in a sentence that names the file, and leaves nothing', async () => {
  const content = 'what it should be'
  const pointer = lfs.pointer(content)
  const batch = (entry: object) => () => {
    lfs.answer.batch = (asked) => asked.map((each) => ({ ...each, ...entry }))
  }
  const href = (address: string) => batch({ actions: { download: { href: address } } })
  const bytes = (text: string) => () => {
    lfs.answer.object = (_, response) => void response.end(text)
  }
  const status =
    (code: number, headers = {}) =>
    () => {
      lfs.answer.batch = (_, response) => void response.writeHead(code, headers).end('{}')
    }
  const cases: [string, () => void, RegExp][] = [
    ['missing', batch({ error: { code: 404, message: 'x' } }), /does not have its content: push it with/],
    ['refused', batch({ error: { code: 507, message: 'x' } }), /refused its content with the code 507/],
    ['another content', bytes('what it should bX'), /not the content that the repository names/],
    ['a longer content', bytes(`${content}!`), /more was sent than announced|not the content/],
    ['a shorter content', bytes('what'), /not the content that the repository names/],
    ['no LFS', status(404), /has no LFS server for this repository/],
    ['no access', status(401), /has no such repository, or it is private/],
    ['too many requests', status(429, { 'retry-after': '60' }), /too many requests and refuses more until .* UTC/],
    ['an error', status(503), /answered with the HTTP status 503/],
    ['no JSON', status(200), /did not answer as an LFS server/],
    ['an address inside', href('http://10.0.0.1/x'), /Connections to 10\.0\.0\.1 are not allowed/],
    ['a file', href('file:///etc/passwd'), /did not answer as an LFS server/],
  ]
  for (const [name, set, reason] of cases) {
    lfs.answer = Object.assign(lfs.answer, { batch: undefined, object: undefined })
    set()
    const source = await create(open, { 'deep/a.bin': pointer, name })
    const error = await refusal(contentOf(source))
    assert.match(error.message, /^The file "deep\/a\.bin" is stored with Git LFS and could not be fetched: /, name)
    assert.match(error.message, reason, name)
    assert.match(error.code, /^git_/)
    const mirror = mirrors.mirrorOf(source)
    assert.equal((await git.run(['--git-dir', mirror, 'for-each-ref', 'refs/slipway/lfs'])).stdout, '', name)
    const left = readdirSync(mirror, { recursive: true }) as string[]
    assert.deepEqual(
      left.filter((entry) => /tmp_|\.lock$|lfs-index|crash/.test(entry)),
      [],
      name,
    )
  }
  lfs.answer = Object.assign(lfs.answer, { batch: undefined, object: undefined })
  const [first, ...rest] = pointer.split('\n')
  const extended = [first, `ext-0-foo sha256:${'a'.repeat(64)}`, ...rest].join('\n')
  const configured = (text: string) => create(open, { 'a.bin': pointer, '.lfsconfig': `[lfs]\n\turl = ${text}\n` })
  const others: [GitSource, RegExp][] = [
    [await create(open, { 'a.bin': extended }), /"a\.bin" .*changed by an extension of Git LFS/],
    [await configured('file:///etc'), /"a\.bin" .*the address in \.lfsconfig is not a plain https address/],
    [await configured('https://user:word@h.example/x'), /not a plain https address/],
    [await create(bare, { 'a.bin': pointer }), /"a\.bin" /],
  ]
  for (const [source, message] of others) assert.match((await refusal(contentOf(source))).message, message)
})

test('the sizes of pointers count before anything is fetched, and a full mirror is emptied for its next commit', async () => {
  const source = await create(open, { 'a.bin': lfs.pointer(Buffer.alloc(3 << 20, 'a')) })
  const small = mirrorsWith({ preparation: { contextBytes: 2 << 20 } })
  assert.match((await refusal(contentOf(source, {}, small))).message, /more than 2\.0 MB \(SLIPWAY_CONTEXT_MAX_MB\)/)
  const tight = mirrorsWith({ limits: { maxBytes: 100_000 } })
  assert.match((await refusal(contentOf(source, {}, tight))).message, /^The file "a\.bin" .*which is the limit/)
  assert.equal(lfs.requests.length, 0)
  const noise = () => Buffer.from(Array.from({ length: 200_000 }, () => Math.floor(Math.random() * 256)))
  const moving = { ...(await create(open, { 'a.bin': lfs.pointer(noise()) })), organizationId: 'another' }
  const roomy = mirrorsWith({ limits: { maxBytes: 300_000 } })
  await contentOf(moving, {}, roomy)
  const next = noise()
  await open.commit(`r${made}`, { 'a.bin': lfs.pointer(next) }, 'Second')
  assert.equal((await refusal(contentOf(moving, {}, roomy))).code, 'git_ref_missing')
  const { log } = await contentOf(moving, {}, roomy)
  assert.match(log, /Fetching 1 file of Git LFS/)
  const before = { ...moving, commitId: await open.git(`r${made}`, ['rev-parse', 'main~1']) }
  assert.equal((await refusal(contentOf(before, {}, roomy))).code, 'git_ref_missing')
  await contentOf(before, {}, roomy)
  assert.equal((await refusal(contentOf(moving, {}, roomy))).code, 'git_ref_missing')
  await contentOf(moving, {}, roomy)
  await Promise.all([small, tight, roomy].map((each) => each.close()))
})

test('the folder of a chart has the contents too', async () => {
  const source = await create(open, { 'chart/a.bin': lfs.pointer('of the chart'), 'chart/Chart.yaml': 'name: x\n' })
  const files = await mirrors.folder(source, 'chart', { files: 10, bytes: 1000 }, never)
  assert.deepEqual(Object.fromEntries(files.map(({ path, content }) => [path, content.toString()])), {
    'Chart.yaml': 'name: x\n',
    'a.bin': 'of the chart',
  })
  const large = await create(open, { 'chart/a.bin': lfs.pointer(Buffer.alloc(2 << 20)) })
  lfs.requests.length = 0
  await assert.rejects(mirrors.folder(large, 'chart', { files: 10, bytes: 1 << 20 }, never), { code: 'git_too_large' })
  assert.equal(lfs.requests.length, 0)
  const texts = await mirrors.files(source, '', (path) => path === 'chart/a.bin', never)
  assert.deepEqual(texts, [{ path: 'chart/a.bin', text: 'of the chart' }])
})

test('the address of the LFS server follows from the repository and .lfsconfig', () => {
  const repository = 'https://git.example:8443/team/app'
  const internal = internalUrlOf('01234567-0123-7123-8123-0123456789ab')
  const cases: [string, string | null, string | null][] = [
    [repository, null, `${repository}.git/info/lfs`],
    [`${repository}.git/`, null, `${repository}.git/info/lfs`],
    [repository, 'https://lfs.example/x/', 'https://lfs.example/x'],
    [repository, 'git@git.example:team/app.git', `${repository}.git/info/lfs`],
    [repository, 'ssh://git@lfs.example:22/team/app', 'https://lfs.example/team/app.git/info/lfs'],
    [repository, 'http://lfs.example/x', 'refused'],
    [repository, 'file:///etc', 'refused'],
    [internal, null, null],
    [internal, 'https://lfs.example/x', 'https://lfs.example/x'],
  ]
  for (const [url, configured, endpoint] of cases)
    assert.equal(lfsEndpoint(url, configured), endpoint, configured ?? url)
})
