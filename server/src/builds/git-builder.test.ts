import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { busyboxImage, ensureBusybox } from '../../test/support/docker/busybox-image.ts'
import { createBuilder } from '../../test/support/docker/one-builder.ts'
import { startImages, type TestImages } from '../../test/support/docker/organization-images.ts'
import { createMemoryStore } from '../../test/support/image-store.ts'
import { type FileContent, type GitServer, startGitServer } from '../../test/support/peers/git-server.ts'
import { until } from '../../test/support/until.ts'
import { createEngine } from '../lib/docker/docker-engine.ts'
import { DeploymentError } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import { createLog } from '../lib/log.ts'
import { createOutbound } from '../lib/net/outbound.ts'
import { Secret } from '../lib/secret.ts'
import { systemClock } from '../lib/time/clock.ts'
import type { Builder, BuildRequest } from './builder.ts'
import { removeBuiltImages } from './built-images.ts'
import { removeGitPlace } from './git/place.ts'

const never = new AbortController().signal
const engine = createEngine()
const dataDir = mkdtempSync(join(tmpdir(), 'slipway-builder-'))
const { store, contentKeys, stepIds } = createMemoryStore()
const organizationId = newId()
let server: GitServer
let builder: Builder
let images: TestImages
let made = 0

before(async () => {
  await ensureBusybox()
  server = await startGitServer()
  images = await startImages()
  builder = createBuilder({
    dataDir,
    database: undefined as never,
    network: createOutbound({ allow: ['loopback'] }),
    log: createLog('silent'),
    clock: systemClock,
    concurrency: 2,
    store,
    images,
    registryLogins: async () => [],
  })
})

after(async () => {
  await builder.close()
  await images.close()
  await server.close()
  await removeBuiltImages(engine, contentKeys(), stepIds())
  await engine.close()
  await removeGitPlace(dataDir)
  rmSync(dataDir, { recursive: true, force: true })
})

type More = Partial<Omit<BuildRequest, 'variables' | 'secrets'>> & { env?: Record<string, string>; hidden?: string[] }

const repository = async (files: Record<string, FileContent>): Promise<string> => {
  made += 1
  await server.createRepository(`app${made}`)
  await server.commit(`app${made}`, files, 'files')
  return `app${made}`
}

const clusterId = newId()

const requestOf = async (name: string, { env = {}, hidden = [], ...more }: More = {}): Promise<BuildRequest> => {
  const source = { organizationId, url: server.url(name), branch: 'main' }
  const { git_commit_id: commitId } = await builder.fetch(source, never)
  const fixed = { rootPath: '/', dockerfilePath: 'Dockerfile', targetStage: null, memoryMb: 256, cpuMillicores: 1000 }
  const ids = { organizationId, clusterId, cacheScope: 'scope', serviceId: newId(), deploymentId: newId() }
  const secrets = { variables: new Secret(env), secrets: new Secret(hidden) }
  return { source, commitId, ...fixed, ...ids, ...secrets, timeoutMs: 60_000, ...more }
}

const build = async (name: string, more: More = {}, signal = never) => {
  let log = ''
  const onLog = (text: string) => {
    log += text
  }
  const image = await builder.build(await requestOf(name, more), onLog, signal)
  return { ...image, log }
}

const fails = async (work: Promise<unknown>, code: string): Promise<DeploymentError> => {
  const error = await work.then(
    () => assert.fail(`not ${code}`),
    (reason: unknown) => reason,
  )
  assert.ok(error instanceof DeploymentError, String((error as Error).stack))
  assert.equal(error.code, code, error.message)
  return error
}

/** Containers whose command holds the text, running or not. */
const containersWith = async (text: string): Promise<string[]> => {
  const all = await engine.call<{ Id: string; Command: string }[]>('GET', '/containers/json', { query: { all: true } })
  return all.filter(({ Command }) => Command.includes(text)).map(({ Id }) => Id)
}

const inspect = (id: string) =>
  engine.call<{ Config: { Labels: Record<string, string>; Env: string[] }; RepoTags: string[] }>(
    'GET',
    `/images/${id}/json`,
  )

const history = async (id: string): Promise<string> => JSON.stringify(await engine.call('GET', `/images/${id}/history`))

test('the same content is built once, also from another repository; a changed file is built', async () => {
  const files = { Dockerfile: `FROM ${busyboxImage}\nCOPY . /app\n# ${newId()}\n`, page: 'one' }
  const name = await repository(files)
  const first = await build(name)
  assert.equal(first.skipped, false)
  assert.match(first.log, /COPY/)
  assert.match(first.reference, /^sha256:[0-9a-f]{64}$/)
  const again = await build(name)
  assert.deepEqual([again.skipped, again.imageId, again.log], [true, first.imageId, ''])
  const copy = await build(await repository(files))
  assert.deepEqual([copy.skipped, copy.imageId], [true, first.imageId])
  await server.commit(name, { page: 'two' }, 'changed')
  const changed = await build(name)
  assert.equal(changed.skipped, false)
  assert.notEqual(changed.imageId, first.imageId)
  const { RepoTags } = await inspect(first.imageId)
  assert.match(RepoTags.join(), /^slipway\/[0-9a-f-]{36}\/[0-9a-f-]{36}:[0-9a-f]{16}$/)
})

test('an image that is gone from the engine is built again', async () => {
  const name = await repository({ Dockerfile: `FROM ${busyboxImage}\nLABEL x=${newId()}\n` })
  const first = await build(name)
  await engine.call('DELETE', `/images/${first.imageId}`, { query: { force: true } })
  assert.equal((await build(name)).skipped, false)
})

test('two deployments that want the same content at once share one build', async () => {
  const name = await repository({ Dockerfile: `FROM ${busyboxImage}\nRUN echo ${newId()}\n` })
  const both = await Promise.all([build(name), build(name)])
  assert.deepEqual(both.map(({ skipped }) => skipped).sort(), [false, true])
})

test('only variables that the Dockerfile declares reach the build, and their values are part of the key', async () => {
  const dockerfile = `FROM ${busyboxImage}\nARG GREETING\nRUN echo "$GREETING" > /greeting; env > /env # ${newId()}\n`
  const name = await repository({ Dockerfile: dockerfile })
  const env = { GREETING: 'hello', DATABASE_PASSWORD: 'canary-undeclared' }
  const first = await build(name, { env })
  const told = await history(first.imageId)
  assert.equal(told.includes('canary-undeclared') || told.includes('DATABASE_PASSWORD'), false)
  assert.match(told, /GREETING=hello/)
  assert.equal((await build(name, { env: { ...env, DATABASE_PASSWORD: 'other' } })).skipped, true)
  assert.equal((await build(name, { env: { GREETING: 'bye' } })).skipped, false)
})

test('a broken Dockerfile ends in build_failed with its last lines', async () => {
  const lines = Array.from({ length: 50 }, (_, index) => `echo line-${index};`).join(' ')
  const failing = await fails(
    build(await repository({ Dockerfile: `FROM ${busyboxImage}\nRUN ${lines} exit 3\n` })),
    'build_failed',
  )
  assert.ok(
    failing.lines.length <= 30 && failing.lines.some((line) => line.includes('line-49')),
    failing.lines.join('|'),
  )
  assert.match(failing.message, /non-zero code: 3/)
  const unknown = await fails(
    build(await repository({ Dockerfile: `FROM ${busyboxImage}\nNONSENSE\n` })),
    'build_failed',
  )
  assert.match(unknown.message, /NONSENSE/i)
  await fails(build(await repository({ Dockerfile: 'FROM no-such.invalid/x:1\n' })), 'build_failed')
  const stage = await repository({ Dockerfile: `FROM ${busyboxImage} AS one\n` })
  await fails(build(stage, { targetStage: 'other' }), 'build_failed')
})

test('an ADD from a git repository is refused before anything is built', async () => {
  const name = await repository({ Dockerfile: `FROM ${busyboxImage}\nADD git@127.0.0.1:a/b.git /x\n` })
  assert.match((await fails(build(name), 'build_refused')).message, /ADD .* is the address of a git repository/)
})

test('a build past its time ends in build_timeout, and no container of it is left', async () => {
  const mark = newId()
  const name = await repository({ Dockerfile: `FROM ${busyboxImage}\nRUN echo begun; sleep 100000 # ${mark}\n` })
  const start = performance.now()
  const error = await fails(build(name, { timeoutMs: 3000 }), 'build_timeout')
  assert.ok(performance.now() - start < 10_000)
  assert.match(error.lines.join('\n'), /begun/)
  assert.deepEqual(await containersWith(mark), [])
})

test('an aborted build rejects with the reason, and no container of it is left', async () => {
  const mark = newId()
  const name = await repository({ Dockerfile: `FROM ${busyboxImage}\nRUN sleep 200000 # ${mark}\n` })
  const control = new AbortController()
  const reason = new Error('canceled by the test')
  const running = build(name, {}, control.signal)
  running.catch(() => {})
  await until(async () => (await containersWith(mark)).length > 0, {
    timeoutMs: 20_000,
    what: 'the container',
  })
  control.abort(reason)
  await assert.rejects(running, (error) => error === reason)
  // A container that the engine had not reported yet at the abort is removed by the engine alone.
  await until(async () => (await containersWith(mark)).length === 0, { timeoutMs: 10_000, what: 'its removal' })
})

test('paths and links that leave the repository are refused, and missing Dockerfiles are named', async () => {
  const name = await repository({
    'app/Dockerfile': `FROM ${busyboxImage}\n`,
    'app/up': { symlink: '../../etc' },
    abs: { symlink: '/etc' },
    'app/Out': { symlink: '/etc/passwd' },
    circle: { symlink: 'circle' },
  })
  for (const rootPath of ['..', '/../x', 'app/../..', 'abs', 'app/up', 'circle'])
    await fails(build(name, { rootPath }), 'path_outside')
  for (const dockerfilePath of ['../../Dockerfile', '../..', 'Out', 'up/passwd', '../abs/passwd'])
    await fails(build(name, { rootPath: '/app', dockerfilePath }), 'path_outside')
  const missing = await fails(build(name, { dockerfilePath: 'docker/Dockerfile' }), 'dockerfile_missing')
  assert.match(missing.message, /\/docker\/Dockerfile/)
  await fails(build(name, { dockerfilePath: 'app' }), 'dockerfile_missing')
  await fails(build(name, { rootPath: '/none' }), 'dockerfile_missing')
})

test('the context is the root path without what .dockerignore names and without .git; links stay links', async () => {
  const name = await repository({
    'app/Dockerfile': `FROM ${busyboxImage}\nCOPY . /app\nRUN cd /app && find . | sort | tr '\\n' ' '; readlink link; cat run; ls -l run # ${newId()}\n`,
    'app/.dockerignore': '*.md\nsecret\n!keep.md\n',
    'app/.gitattributes': 'run export-ignore\n',
    'app/a.md': '',
    'app/keep.md': '',
    'app/secret/key': '',
    'app/link': { symlink: '/etc/passwd' },
    'app/run': { text: 'RUNNABLE', mode: '100755' },
    outside: '',
  })
  const { log } = await build(name, { rootPath: '/app' })
  assert.match(log, /\. \.\/\.dockerignore \.\/\.gitattributes \.\/Dockerfile \.\/keep\.md \.\/link \.\/run /)
  assert.match(log, /\/etc\/passwd\n/)
  assert.match(log, /RUNNABLE-rwxr-xr-x/)
})

test('a Dockerfile above the root path or behind a link inside the repository is used', async () => {
  const text = `FROM ${busyboxImage}\nCOPY page /page\nRUN echo from-above-$(cat /page) # ${newId()}\n`
  const name = await repository({
    'docker/File': text,
    'app/page': 'p1',
    'app/Dockerfile': { symlink: '../docker/File' },
    current: { symlink: 'app' },
  })
  const above = await build(name, { rootPath: 'app', dockerfilePath: '../docker/File' })
  assert.match(above.log, /from-above-p1/)
  const linked = await build(name, { rootPath: '/app/' })
  assert.match(linked.log, /Using cache/)
  assert.equal(linked.skipped, false)
  assert.equal((await build(name, { rootPath: '/current' })).skipped, true)
})

test('without the cache the same commit is built again in full', async () => {
  const name = await repository({ Dockerfile: `FROM ${busyboxImage}\nRUN echo built-$((40 + 2)) # ${newId()}\n` })
  await build(name)
  const again = await build(name, { noCache: true })
  assert.deepEqual([again.skipped, /Using cache/.test(again.log), /built-42/.test(again.log)], [false, false, true])
  assert.equal((await build(name)).skipped, true)
})

test('the context has the files of submodules, unless they are skipped', async () => {
  const part = await repository({ file: 'from the part' })
  const id = await server.git(part, ['rev-parse', 'main'])
  const dockerfile = `FROM ${busyboxImage}\nCOPY . /context\nRUN cat /context/part/file # ${newId()}\n`
  const modules = `[submodule "part"]\n\tpath = part\n\turl = ../${part}.git\n`
  const name = await repository({ Dockerfile: dockerfile, '.gitmodules': modules })
  const files = `${await server.git(name, ['ls-tree', 'main'])}\n160000 commit ${id}\tpart\n`
  const linked = ['commit-tree', await server.git(name, ['mktree'], files), '-p', 'main', '-m', 'Linked']
  await server.git(name, ['update-ref', 'refs/heads/main', await server.git(name, linked)])
  await fails(build(name, { skipSubmodules: true }), 'build_failed')
  assert.match((await build(name)).log, /Fetching the submodule part at [\s\S]*from the part/)
  assert.equal((await build(name)).skipped, true)
})

test('secrets are masked in the log and in the error', async () => {
  const secret = 'canary secret+4711'
  const dockerfile = `FROM ${busyboxImage}\nARG TOKEN\nRUN echo "plain $TOKEN"; echo -n "$TOKEN" | base64; echo "error $TOKEN"; exit 1 # ${newId()}\n`
  const name = await repository({ Dockerfile: dockerfile })
  let log = ''
  const request = await requestOf(name, { env: { TOKEN: secret }, hidden: [secret] })
  const error = await fails(
    builder.build(
      request,
      (text) => {
        log += text
      },
      never,
    ),
    'build_failed',
  )
  for (const form of [secret, Buffer.from(secret).toString('base64')]) {
    assert.equal(log.includes(form), false)
    assert.equal([error.message, ...error.lines].join('\n').includes(form), false)
  }
  assert.match(log, /plain \*\*\*/)
})

test('100 MB of output are capped at 2 MB with a line that says so, and the build continues', async () => {
  const name = await repository({
    Dockerfile: `FROM ${busyboxImage}\nRUN yes some-output-of-a-build | head -c 100000000\nRUN echo ${newId()}\n`,
  })
  const { log, skipped } = await build(name)
  assert.equal(skipped, false)
  assert.ok(log.length < 2.2e6 && log.length > 2e6, String(log.length))
  assert.match(log.slice(-100), /log truncated/)
})

test('a step that eats memory is ended by the limit', async () => {
  const name = await repository({ Dockerfile: `FROM ${busyboxImage}\nRUN tail /dev/zero # ${newId()}\n` })
  const start = performance.now()
  const error = await fails(build(name, { memoryMb: 64 }), 'build_failed')
  assert.match(error.message, /137|non-zero/)
  assert.ok(performance.now() - start < 30_000)
})
