/** Directories sent as archives: the result of a valid one, and what hostile ones must not do or cost. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { after, test } from 'node:test'
import { createGzip, gzipSync } from 'node:zlib'
import { usualLimits } from '../src/limits/limits.ts'
import { type Json, newApplication, newPlace, startApi } from './support/api.ts'
import { type GitClient, gitUrl, newGitClient } from './support/peers/git-client.ts'

const api = await startApi({ git: true, settings: { pushMaxMb: 4, limits: usualLimits } })
const { call, database, token } = api
const clients: GitClient[] = []
after(async () => {
  for (const client of clients) await client.remove()
})

interface Item {
  name: string
  type?: string
  content?: Buffer | string
  link?: string
  mode?: number
  /** Said instead of the real one. */
  size?: number
}

const blockBytes = 512

const header = ({ name, type = '0', content = '', link = '', mode = 0o644, size }: Item): Buffer => {
  const block = Buffer.alloc(blockBytes)
  block.write(name, 0, 100)
  block.write(`${mode.toString(8).padStart(7, '0')}\0`, 100)
  block.write(`${(size ?? Buffer.byteLength(content)).toString(8).padStart(11, '0')}\0`, 124)
  block.write('        ', 148)
  block.write(type, 156)
  block.write(link, 157, 100)
  block.write('ustar\x0000', 257)
  const sum = block.reduce((all, byte) => all + byte, 0)
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return block
}

const item = (one: Item): Buffer => {
  const bytes = Buffer.from((one.content ?? '') as Buffer)
  const padding = (blockBytes - (bytes.length % blockBytes)) % blockBytes
  return Buffer.concat([header(one), bytes, Buffer.alloc(padding)])
}

const pax = (records: Record<string, string>): Item => {
  const lines = Object.entries(records).map(([key, value]) => {
    const rest = ` ${key}=${value}\n`
    let length = rest.length
    while (`${length}`.length + rest.length !== length) length = `${length}`.length + rest.length
    return `${length}${rest}`
  })
  return { name: 'pax', type: 'x', content: lines.join('') }
}

const tar = (...items: Item[]): Buffer => Buffer.concat([...items.map(item), Buffer.alloc(2 * blockBytes)])

const packed = (...items: Item[]): Buffer => gzipSync(tar(...items))

const newScene = async () => {
  const { environmentId } = await newPlace(api)
  const git_repository = { url: 'slipway:internal', branch: 'main' }
  const application: Json = await newApplication(api, environmentId, { git_repository, ports: [] })
  return { application, send: (body: Buffer) => sendTo(application.id, body) }
}

const sendTo = async (id: string, body: Buffer, query = '', headers: Record<string, string> = {}) => {
  const answer = await fetch(`${api.url}/application/${id}/source${query}`, {
    method: 'POST',
    headers: { authorization: `Token ${token}`, 'content-type': 'application/gzip', ...headers },
    body: new Uint8Array(body),
  })
  return { status: answer.status, body: (await answer.json()) as Json }
}

const headOf = async (id: string): Promise<string | undefined> =>
  (
    await database.query<{ id: string }>(
      `select object_id as id from git_ref where repository_id = $1 and name = 'refs/heads/main'`,
      [id],
    )
  )[0]?.id

test('a directory becomes a commit with its files, modes and links, and is deployed', async () => {
  const { application } = await newScene()
  const long = `deep/${'folder/'.repeat(20)}file.txt`
  const body = packed(
    { name: 'pax_global_header', type: 'g', content: '20 comment=whatever\n' },
    { name: './', type: '5' },
    { name: './Dockerfile', content: 'FROM scratch\n' },
    { name: './run.sh', content: 'true\n', mode: 0o755 },
    { name: './src/', type: '5' },
    pax({ path: `./${long}` }),
    { name: 'short', content: 'long' },
    { name: './src/"quo\\ted"', content: 'q' },
    { name: './link', type: '2', link: 'src/"quo\\ted"' },
    { name: './src/up', type: '2', link: '../Dockerfile' },
  )
  const { status, body: answer } = await sendTo(application.id, body, '?message=From%20my%20laptop')
  assert.equal(status, 202, JSON.stringify(answer))
  const client = await newGitClient(gitUrl(api.url, application.id, token))
  clients.push(client)
  await client.done('fetch', '--quiet', 'slipway')
  const commit = await client.done('rev-parse', 'slipway/main')
  assert.equal(commit, answer.git_commit_id)
  assert.equal(await client.done('log', '-1', '--format=%s', commit), 'From my laptop')
  const listed = await client.done('ls-tree', '-r', '-z', commit)
  assert.deepEqual(
    listed.split('\0').flatMap((line) => (line === '' ? [] : [line.replace(/ .*\t/, ' ')])),
    ['100644 Dockerfile', `100644 ${long}`, '120000 link', '100755 run.sh', '100644 src/"quo\\ted"', '120000 src/up'],
  )
  const [row] = await database.query<{ by: string; commit: string }>(
    `select d.triggered_by as by, w.requested ->> 'commitId' as commit from deployment d
     join deployment_service w on w.deployment_id = d.id where d.id = $1`,
    [answer.deployment_request_id],
  )
  assert.equal(row?.commit, commit)
  assert.match(row.by, /\(archive\)$/)
  const next = await sendTo(application.id, packed({ name: 'only.txt', content: 'x' }))
  assert.equal(next.status, 202)
  await client.done('fetch', '--quiet', 'slipway')
  assert.equal(await client.done('rev-parse', 'slipway/main~1'), commit)
  assert.equal(await client.done('ls-tree', '-r', '--name-only', 'slipway/main'), 'only.txt')
})

test('archives that lead out of their folder or hide something, and files that are not archives, are refused with a sentence', async () => {
  const { application, send } = await newScene()
  const file = { name: 'a', content: 'x' }
  const hostile: [string, Buffer, RegExp][] = [
    ['..', packed({ name: '../a', content: 'x' }), /leaves its folder/],
    ['a/../../b', packed({ name: 'a/../../b', content: 'x' }), /leaves its folder/],
    ['absolute', packed({ name: '/etc/passwd', content: 'x' }), /absolute/],
    ['.git', packed({ name: '.git/config', content: 'x' }), /\.git/],
    ['a/.GIT/hooks', packed({ name: 'a/.GIT/hooks/x', content: 'x' }), /\.git/],
    ['git~1', packed({ name: 'GIT~1/config', content: 'x' }), /\.git/],
    ['.git with a dot', packed({ name: '.git. /config', content: 'x' }), /\.git/],
    ['an invisible character', packed({ name: '.g\u200cit/config', content: 'x' }), /\.git/],
    ['a line break', packed(pax({ path: 'a\nb' }), file), /control characters/],
    ['pax path', packed(pax({ path: '../../x' }), file), /leaves its folder/],
    ['a link out', packed({ name: 'l', type: '2', link: '../x' }), /link/],
    ['an absolute link', packed({ name: 'l', type: '2', link: '/etc/passwd' }), /link/],
    [
      'links together',
      packed({ name: 'a/b/d', type: '2', link: '../..' }, { name: 'a/b/l', type: '2', link: 'd/../x' }),
      /link/,
    ],
    ['a link as .gitmodules', packed({ name: '.gitmodules', type: '2', link: 'a' }), /link/],
    ['a hard link', packed(file, { name: 'h', type: '1', link: 'a' }), /hard links/],
    ['a device', packed({ name: 'd', type: '3' }), /neither a file/],
    ['a fifo', packed({ name: 'f', type: '6' }), /neither a file/],
    ['a sparse file', packed(pax({ 'GNU.sparse.major': '1' }), file), /sparse/],
    [
      'no UTF-8',
      gzipSync(Buffer.concat([item({ name: 'L', type: 'L', content: Buffer.from([0xff, 0xfe, 0]) }), tar(file)])),
      /UTF-8/,
    ],
    ['a long path', packed(pax({ path: 'a/'.repeat(600) }), file), /longer than 1024/],
    ['a deep path', packed(pax({ path: `${'a/'.repeat(150)}x` }), file), /more than 100 folders/],
    ['a large header', packed({ name: 'p', type: 'x', content: Buffer.alloc(70_000, 'x') }, file), /larger than 64 KB/],
    ['a broken header', packed({ name: 'p', type: 'x', content: '99 path=x\n' }, file), /damaged/],
    ['a wrong sum', gzipSync(tar(file).fill('b', 0, 1)), /damaged/],
    ['a wrong size', packed({ name: 'a', size: 8 ** 11 - 1 }), /damaged/],
    ['no tar', gzipSync(randomBytes(5000)), /damaged/],
    ['no gzip', tar(file), /gzip/],
    ['half a gzip', packed({ name: 'a', content: randomBytes(50_000) }).subarray(0, 20_000), /gzip/],
    ['nothing', Buffer.alloc(0), /no files|gzip/],
    ['only folders', packed({ name: 'a/', type: '5' }), /no files/],
  ]
  for (const [what, body, expected] of hostile) {
    const answer = await send(body)
    assert.equal(answer.status, 400, `${what}: ${JSON.stringify(answer.body)}`)
    assert.match(answer.body.message, expected, what)
    assert.equal(await headOf(application.id), undefined, what)
  }
  assert.equal((await sendTo(application.id, packed(file), '', { 'content-type': 'application/json' })).status, 415)
  assert.equal((await sendTo(application.id, packed(file), '', { 'idempotency-key': 'k' })).status, 400)
  assert.equal((await call('POST', '/organization', 'x', { 'content-type': 'application/gzip' })).status, 415)
  const left = await database.query('select 1 from git_pack where repository_id = $1', [application.id])
  assert.deepEqual(left, [])
  assert.equal((await send(packed(file))).status, 202)
})

/** The gzip output of a tar that is made while it is sent. */
const stream = async (pieces: Iterable<Buffer>): Promise<Buffer> => {
  const gzip = createGzip({ level: 6 })
  const all = gzip.toArray()
  for (const piece of pieces) if (!gzip.write(piece)) await new Promise((resolve) => gzip.once('drain', resolve))
  gzip.end()
  return Buffer.concat(await all)
}

test('an archive is sent as it is', async () => {
  const { application } = await newScene()
  const body = packed({ name: 'Dockerfile', content: 'FROM scratch\n' })
  const { status } = await sendTo(application.id, body, '', { 'content-encoding': 'gzip' })
  assert.equal(status, 415)
  assert.equal(await headOf(application.id), undefined)
})

test('bombs are stopped at a limit, while the server answers others', async () => {
  const { application, send } = await newScene()
  function* zeros(): Generator<Buffer> {
    yield header({ name: 'zeros', size: 600 << 20 })
    for (let count = 0; count < 120; count += 1) yield Buffer.alloc(1 << 20)
  }
  function* entries(): Generator<Buffer> {
    for (let count = 0; count < 50_010; count += 1) yield header({ name: `${count % 100}/f${count}` })
  }
  function* crowd(): Generator<Buffer> {
    for (let count = 0; count < 10_010; count += 1) yield header({ name: `a/f${count}` })
  }
  function* paths(): Generator<Buffer> {
    for (let count = 0; count < 9000; count += 1) {
      yield item(pax({ path: `${`${count}`.padEnd(200, 'x')}/${'y'.repeat(800)}` }))
      yield header({ name: 'a' })
    }
  }
  function* headers(): Generator<Buffer> {
    const large = item({ name: 'p', type: 'x', content: '12 a=bcdefg\n'.repeat(5000) })
    for (let count = 0; count < 400; count += 1) yield large
  }
  const bombs: [string, () => Iterable<Buffer>, RegExp][] = [
    ['zeros', zeros, /inflates|MB of files/],
    ['entries', entries, /more than 50000 entries/],
    ['one folder', crowd, /more than 10000 files in one folder/],
    ['paths', paths, /too long in total/],
    ['headers', headers, /too large in total/],
  ]
  for (const [what, pieces, expected] of bombs) {
    const sent = send(await stream(pieces()))
    const other = await call('GET', '/organization')
    assert.equal(other.status, 200)
    const answer = await sent
    assert.equal(answer.status, 400, `${what}: ${JSON.stringify(answer.body)}`)
    assert.match(answer.body.message, expected, what)
  }
  // The connection may end before all of it was sent.
  const large = await send(packed({ name: 'large', content: randomBytes(5 << 20) })).catch(() => null)
  assert.ok(large === null || large.status === 413, JSON.stringify(large?.body))
  assert.equal(await headOf(application.id), undefined)
})
