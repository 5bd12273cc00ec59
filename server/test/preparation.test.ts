/**
 * The only effect of a hostile repository on the server is one sentence in its own deployment's log. The builder runs
 * in this process, so the event loop of this process must stay free. The engine is a stub that accepts contexts: none
 * of this may depend on the response of an engine.
 */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { after, test } from 'node:test'
import { extract } from 'tar-stream'
import type { Builder, BuildRequest } from '../src/builds/builder.ts'
import { removeGitPlace } from '../src/builds/git/place.ts'
import { ownDockerfile } from '../src/builds/preparation/own-dockerfile.ts'
import { DeploymentError } from '../src/lib/errors.ts'
import { newId } from '../src/lib/ids.ts'
import { createLog } from '../src/lib/log.ts'
import { createOutbound } from '../src/lib/net/outbound.ts'
import { Secret } from '../src/lib/secret.ts'
import { systemClock } from '../src/lib/time/clock.ts'
import { createBuilder } from './support/docker/one-builder.ts'
import { createMemoryStore } from './support/image-store.ts'
import { howMany } from './support/nightly.ts'
import { type FileContent, startGitServer } from './support/peers/git-server.ts'

const never = new AbortController().signal
const isRoot = process.getuid?.() === 0

/** Accepts contexts and reports that it built them; `taken` has their content. */
const taken = { bytes: 0, entries: [] as string[] }
const engine = createServer((request, response) => {
  if (request.url!.includes('/tag?')) return void response.writeHead(201).end()
  if (request.url === '/version')
    return void response.setHeader('content-type', 'application/json').end('{"Os":"linux","Arch":"amd64"}')
  if (!request.url!.includes('/build?')) return void response.writeHead(404).end('{"message":"none"}')
  const entries = extract()
  entries.on('entry', ({ name }, entry, next) => {
    taken.entries.push(name)
    entry.on('end', next).resume()
  })
  entries.on('error', () => {})
  request.on('data', (chunk: Buffer) => {
    taken.bytes += chunk.length
    entries.write(chunk)
  })
  request.on('error', () => {})
  request.on('end', () => response.end(`{"aux":{"ID":"sha256:${'a'.repeat(64)}"}}\n`))
}).listen(0, '127.0.0.1')
await once(engine, 'listening')

const server = await startGitServer()
const folders: string[] = []
const builders: Builder[] = []

/** The sentinel folder of one test's canaries and data. */
const newFolder = (): string => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-preparation-'))
  folders.push(folder)
  return folder
}

const open = (more: Partial<Parameters<typeof createBuilder>[0]> = {}): Builder => {
  const builder = createBuilder({
    dataDir: newFolder(),
    database: undefined as never,
    connection: { kind: 'tcp', host: '127.0.0.1', port: (engine.address() as AddressInfo).port, tls: null },
    network: createOutbound({ allow: ['loopback'] }),
    log: createLog('silent'),
    clock: systemClock,
    concurrency: 2,
    store: createMemoryStore().store,
    images: { pull: async () => ({ imageId: 'none', reference: 'none' }) },
    registryLogins: async () => [],
    ...more,
  })
  builders.push(builder)
  return builder
}

after(async () => {
  await Promise.all(builders.map((builder) => builder.close()))
  await server.close()
  engine.closeAllConnections()
  await new Promise((resolve) => engine.close(resolve))
  for (const folder of folders) {
    await removeGitPlace(folder)
    rmSync(folder, { recursive: true, force: true })
  }
})

const loop = monitorEventLoopDelay({ resolution: 10 })
loop.enable()

let made = 0
const newRepository = async (files: Record<string, FileContent> = {}): Promise<string> => {
  made += 1
  const name = `bomb${made}`
  await server.createRepository(name)
  await server.commit(name, { Dockerfile: 'FROM scratch\nCOPY . /\n', ...files }, 'files')
  return name
}

/** Makes `tree` the branch's head, whatever it contains. */
const commitTree = async (name: string, tree: string, message = 'by hand'): Promise<void> => {
  const id = await server.git(name, ['commit-tree', tree, '-m', message])
  await server.git(name, ['update-ref', 'refs/heads/main', id])
}

const sourceOf = (name: string, organizationId = 'one') => ({ organizationId, url: server.url(name), branch: 'main' })

const requestOf = (name: string, commitId: string, organizationId = 'one'): BuildRequest => ({
  organizationId,
  clusterId: 'any',
  cacheScope: 'any',
  source: sourceOf(name, organizationId),
  commitId,
  rootPath: '/',
  dockerfilePath: 'Dockerfile',
  targetStage: null,
  variables: new Secret({}),
  secrets: new Secret([]),
  memoryMb: 64,
  cpuMillicores: 1000,
  timeoutMs: 60_000,
  serviceId: newId(),
  deploymentId: newId(),
})

const deploy = async (builder: Builder, name: string, signal = never) => {
  const { git_commit_id: commitId } = await builder.fetch(sourceOf(name), signal)
  return builder.build(requestOf(name, commitId), () => {}, signal)
}

/** The sentence with which the deployment ends; the event loop was never blocked. */
const sentence = async (work: Promise<unknown>, pattern: RegExp): Promise<void> => {
  loop.reset()
  const error = await work.then(
    () => assert.fail('it was built'),
    (reason: unknown) => reason,
  )
  const { max } = loop
  assert.ok(error instanceof DeploymentError, String((error as Error).stack))
  assert.match(error.message, pattern)
  assert.ok(error.message.length < 300 && !error.message.includes('\n'), error.message)
  // A second, for busy machines; an idle one needs a tenth of it.
  assert.ok(max < 1e9, `the event loop stood still for ${Math.round(max / 1e6)} ms`)
  if (process.env.SHOW_DELAYS !== undefined)
    process.stdout.write(`# ${Math.round(max / 1e6)} ms at most: ${error.message}\n`)
}

const builder = open()

test('a commit with an author and length that look like an option writes nothing and names nothing', async () => {
  const name = await newRepository()
  const canary = join(newFolder(), 'pwned')
  mkdirSync(`${canary}-folder`)
  const tree = await server.git(name, ['rev-parse', 'main^{tree}'])
  const author = `x--output=${canary}`
  const payload = `--output=${canary}\0`
  const head = `tree ${tree}\nauthor ${author} <a@b> 1700000000 +0000\ncommitter c <a@b> 1700000000 +0000\n\n`
  for (const length of [2 ** 20 - 2 - payload.length, 2 ** 20 - 1 - payload.length, 2 ** 20 - 400]) {
    const body = Buffer.from(head + '0'.repeat(length))
    const id = await server.git(name, ['hash-object', '-t', 'commit', '-w', '--stdin'], body)
    await server.git(name, ['update-ref', 'refs/heads/main', id])
    const commit = await builder.fetch(sourceOf(name), never).catch((error: unknown) => error)
    if (!(commit instanceof DeploymentError)) {
      const named = (commit as { git_commit_id: string }).git_commit_id
      await builder.build(requestOf(name, named), () => {}, never).catch(() => {})
      assert.equal(named, id, 'the commit is the one that was asked for')
    } else assert.match(commit.message, /1 MB/)
    const planted = readdirSync(join(canary, '..')).filter((entry) => entry !== 'pwned-folder')
    assert.deepEqual(planted, [])
  }
})

test('a text that is not the id of a commit never reaches git', async () => {
  const name = await newRepository()
  await builder.fetch(sourceOf(name), never)
  const canary = join(newFolder(), 'touched')
  for (const id of [`--output=${canary}`, 'main', 'HEAD', '', 'a'.repeat(39), `${'a'.repeat(40)}\ncontents main`]) {
    await assert.rejects(builder.build(requestOf(name, id), () => {}, never))
    await assert.rejects(builder.fetch({ ...sourceOf(name), commitId: id }, never), DeploymentError)
  }
  assert.deepEqual(readdirSync(join(canary, '..')), [])
})

test('a commit message of 150 MB fails with a sentence, with little memory and with much', async () => {
  const name = await newRepository()
  const tree = await server.git(name, ['rev-parse', 'main^{tree}'])
  const head = `tree ${tree}\nauthor a <a@b> 1700000000 +0000\ncommitter c <a@b> 1700000000 +0000\n\n`
  const body = Buffer.concat([Buffer.from(head), Buffer.alloc(150 * 2 ** 20, '0')])
  const id = await server.git(name, ['hash-object', '-t', 'commit', '-w', '--stdin'], body)
  await server.git(name, ['update-ref', 'refs/heads/main', id])
  await sentence(deploy(builder, name), /^Commit [0-9a-f]{12} is 150\.\d MB large/)
  await sentence(deploy(open({ gitMemoryMb: 128 }), name), /memory .*SLIPWAY_GIT_MEMORY_MB/)
})

test('a context that unpacks to more than its limit fails with a sentence, and never reaches the engine', async () => {
  const name = await newRepository()
  const blob = await server.git(name, ['hash-object', '-w', '--stdin'], Buffer.alloc(32 * 2 ** 20))
  const dockerfile = await server.git(name, ['rev-parse', 'main:Dockerfile'])
  const lines = Array.from({ length: 41 }, (_, index) => `100644 blob ${blob}\tzeros-${index}\n`)
  lines.push(`100644 blob ${dockerfile}\tDockerfile\n`)
  await commitTree(name, await server.git(name, ['mktree'], lines.join('')))
  taken.bytes = 0
  await sentence(deploy(builder, name), /more than 500 MB \(SLIPWAY_CONTEXT_MAX_MB\)/)
  await sentence(deploy(open({ preparation: { contextBytes: 200 * 2 ** 20 } }), name), /more than 200 MB \(SLIPWAY_C/)
  assert.equal(taken.bytes, 0)
})

test('a tree of more files than a context may have is a sentence, also of a million', async () => {
  const name = await newRepository()
  const dockerfile = await server.git(name, ['rev-parse', 'main:Dockerfile'])
  const lines: string[] = [`100644 blob ${dockerfile}\tDockerfile\n`]
  for (let index = 0; index < howMany(150_000, 1e6); index += 1) lines.push(`100644 blob ${dockerfile}\tf${index}\n`)
  await commitTree(name, await server.git(name, ['mktree'], lines.join('')))
  await sentence(deploy(builder, name), /more than 100000 files and folders \(SLIPWAY_CONTEXT_MAX_ENTRIES\)/)
})

test('a tree that contains itself ten times, ten levels deep, fails with a sentence', async () => {
  const name = await newRepository()
  const dockerfile = await server.git(name, ['rev-parse', 'main:Dockerfile'])
  let tree = await server.git(name, ['mktree'], `100644 blob ${dockerfile}\tf\n`)
  for (let depth = 0; depth < 10; depth += 1) {
    const lines = Array.from({ length: 10 }, (_, index) => `040000 tree ${tree}\td${index}\n`)
    tree = await server.git(name, ['mktree'], [...lines, `100644 blob ${dockerfile}\tDockerfile\n`].join(''))
  }
  await commitTree(name, tree)
  await sentence(deploy(builder, name), /more than 100000 files and folders|too many files and folders/)
})

test('endlessly nested folders, and links to endless paths, fail with a sentence', async () => {
  const name = await newRepository()
  const dockerfile = await server.git(name, ['rev-parse', 'main:Dockerfile'])
  const own = `100644 blob ${dockerfile}\tDockerfile\n`
  let tree = await server.git(name, ['mktree'], own)
  for (let depth = 0; depth < 45; depth += 1)
    tree = await server.git(name, ['mktree'], `${own}040000 tree ${tree}\t${'d'.repeat(100)}\n`)
  await commitTree(name, tree)
  await sentence(deploy(builder, name), /^The path "d+\.\.\." has more than 4096 bytes/)
  const target = await server.git(name, ['hash-object', '-w', '--stdin'], Buffer.alloc(2 ** 20, 'x'))
  await commitTree(name, await server.git(name, ['mktree'], `${own}120000 blob ${target}\tlink\n`))
  await sentence(deploy(builder, name), /^The link "link" points to a path of more than 4096 bytes/)
})

test('a Dockerfile of 15 MB, and a .dockerignore of 1 MB, fail with a sentence', async () => {
  const large = await newRepository({ Dockerfile: `FROM scratch\n${'RUN true\n'.repeat(1_750_000)}` })
  await sentence(
    deploy(builder, large),
    /^The Dockerfile \/Dockerfile has 1[56] MB: at most 256 kB are allowed \(SLIPWAY_DOCKERFILE_M/,
  )
  const rules = await newRepository({ '.dockerignore': 'x\n'.repeat(2 ** 19) })
  await sentence(
    deploy(builder, rules),
    /^\.dockerignore has 1\.0 MB: at most 64 kB are allowed \(SLIPWAY_DOCKERIGNORE_MAX_KB\)/,
  )
})

test('rules of .dockerignore that were made to explode fail with a sentence, and do not delay others', async () => {
  const path = 'a'.repeat(100)
  const one = await newRepository({ '.dockerignore': `${'**'.repeat(4000)}Z`, [path]: '' })
  await sentence(deploy(builder, one), /^A rule in \.dockerignore has 8001 characters/)
  const many = `${'a?'.repeat(200)}*\n`
  const files = Object.fromEntries(
    Array.from({ length: 400 }, (_, index) => [`${'a'.repeat(200)}/${'a'.repeat(200)}${index}`, '']),
  )
  const slow = await newRepository({ '.dockerignore': `${'**/'}${'*a'.repeat(160)}Z\n`.repeat(150) + many, ...files })
  const hurried = open({ preparation: { readMs: 300 } })
  await hurried.fetch(sourceOf(slow), never)
  await sentence(deploy(hurried, slow), /within 1 s \(SLIPWAY_PREPARE_SECONDS\)/)
  await sentence(deploy(builder, slow), /more than 250000000 comparisons/)
})

test('names that git refuses, and duplicate names, fail with a sentence', async () => {
  const name = await newRepository()
  const dockerfile = await server.git(name, ['rev-parse', 'main:Dockerfile'])
  const entry = (path: string) => Buffer.concat([Buffer.from(`100644 ${path}\0`), Buffer.from(dockerfile, 'hex')])
  const own = entry('Dockerfile')
  for (const [bytes, pattern] of [
    [Buffer.concat([entry('..'), own]), /^The repository has a file "\.\.", a name that git does not allow/],
    [Buffer.concat([entry('.GIT'), own]), /^The repository has a file "\.GIT"/],
    [Buffer.concat([own, entry('twice'), entry('twice')]), /two files with the name "twice"/],
    [Buffer.concat([entry('../up'), own]), /"\.\.\/up"/],
  ] as const) {
    const tree = await server.git(name, ['hash-object', '--literally', '-t', 'tree', '-w', '--stdin'], bytes)
    await commitTree(name, tree)
    await sentence(deploy(builder, name), pattern)
  }
})

test('odd names, submodules, empty files and links are passed on unchanged', async () => {
  const name = await newRepository()
  const dockerfile = await server.git(name, ['rev-parse', 'main:Dockerfile'])
  const names = ['Dockerfile', 'UP', 'up', ' a\n"b', 'ünï']
  const bytes = [
    ...names.map((each) => Buffer.from(`100644 blob ${dockerfile}\t${each}\0`)),
    Buffer.from(`100644 blob ${dockerfile}\tlatin-\xfc\0`, 'latin1'),
    Buffer.from(`120000 blob ${dockerfile}\tlink\0`),
    Buffer.from(`160000 commit ${'1'.repeat(40)}\tmodule\0`),
  ]
  await commitTree(name, await server.git(name, ['mktree', '-z', '--missing'], Buffer.concat(bytes)))
  taken.entries = []
  await deploy(builder, name)
  const own = [ownDockerfile, '.dockerignore']
  assert.deepEqual(
    taken.entries.filter((each) => !own.includes(each)).sort(),
    ['Dockerfile', 'UP', 'up', ' a\n"b', 'ünï', 'latin-\ufffd', 'link', 'module/'].sort(),
  )
})

test('a repository that was read by one organization, or with a token, is not available to others', async () => {
  const guarded = await startGitServer({ auth: { username: 'user', password: 'right' } })
  try {
    await guarded.createRepository('app')
    const commitId = await guarded.commit('app', { Dockerfile: 'FROM scratch\n' }, 'private')
    const url = guarded.url('app')
    const credentials = new Secret({ username: 'user', password: 'right' })
    const theirs = { organizationId: 'one', url, branch: 'main', credentials }
    await builder.fetch(theirs, never)
    const request = requestOf('app', commitId)
    assert.equal((await builder.build({ ...request, source: theirs }, () => {}, never)).skipped, false)
    // A request with other credentials goes to the host, and never gets the copy of another one.
    for (const organizationId of ['one', 'two'])
      await assert.rejects(
        builder.build({ ...request, source: { organizationId, url, branch: 'main' } }, () => {}, never),
        (error) => error instanceof DeploymentError && error.code === 'git_denied',
      )
    const asked = guarded.requests.length
    await builder.build({ ...request, source: { ...theirs, organizationId: 'two' } }, () => {}, never)
    assert.ok(guarded.requests.length > asked)
  } finally {
    await guarded.close()
  }
})

test('a commit in the mirror is no longer used when the host would not show it', async () => {
  let password = 'right'
  const auth = {
    username: 'user',
    get password() {
      return password
    },
  }
  const guarded = await startGitServer({ auth })
  try {
    await guarded.createRepository('app')
    const commitId = await guarded.commit('app', { Dockerfile: 'FROM scratch\n' }, 'was public')
    const credentials = new Secret({ username: 'user', password: 'right' })
    const source = { organizationId: 'one', url: guarded.url('app'), branch: 'main', credentials, commitId }
    assert.equal((await builder.fetch(source, never)).git_commit_id, commitId)
    password = 'changed'
    await assert.rejects(
      builder.fetch(source, never),
      (error) => error instanceof DeploymentError && error.code === 'git_denied',
    )
  } finally {
    await guarded.close()
  }
})

/** Owners of the files below a folder, without following links. */
const ownersBelow = (folder: string): Set<number> =>
  new Set(readdirSync(folder, { recursive: true }).map((entry) => statSync(join(folder, String(entry))).uid))

/** The folder of git's mirrors for this data directory. */
const mirrorsOf = (dataDir: string): string =>
  [join(dataDir, 'git/mirrors'), join(dataDir, 'mirrors')].find((path) => existsSync(path))!

test('files that git fetches belong to a separate user', { skip: !isRoot }, async () => {
  const dataDir = newFolder()
  const own = open({ dataDir })
  await deploy(own, await newRepository())
  assert.equal(ownersBelow(mirrorsOf(dataDir)).has(0), false)
})

test('root does not follow links that were planted in a mirror', { skip: !isRoot }, async () => {
  const dataDir = newFolder()
  const victim = newFolder()
  writeFileSync(join(victim, 'a.lock'), 'precious')
  mkdirSync(join(victim, 'pack'))
  writeFileSync(join(victim, 'pack/tmp_pack_b'), 'precious')
  const name = await newRepository()
  const first = open({ dataDir })
  await first.fetch(sourceOf(name), never)
  await first.close()
  const mirror = join(mirrorsOf(dataDir), readdirSync(mirrorsOf(dataDir))[0]!)
  symlinkSync(join(victim, 'a.lock'), join(mirror, 'planted.lock'))
  symlinkSync(victim, join(mirror, 'tmp_planted'))
  rmSync(join(mirror, 'objects'), { recursive: true })
  symlinkSync(victim, join(mirror, 'objects'))
  const before = statSync(victim)
  await open({ dataDir }).fetch(sourceOf(name), never)
  for (const path of ['a.lock', 'pack/tmp_pack_b']) assert.ok(existsSync(join(victim, path)), path)
  assert.deepEqual([statSync(victim).uid, statSync(victim).mtimeMs], [before.uid, before.mtimeMs])
})
