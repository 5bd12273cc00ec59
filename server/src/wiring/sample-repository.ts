/**
 * The sample application as a read-only git repository, at `/samples/hello.git` of the API's address: the first
 * deployment works without any network access. Recreated at each start from `examples/hello`.
 */
import { cp, mkdtemp, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { openGitPlace } from '../builds/git/place.ts'
import { createGit, type Git } from '../builds/git/process.ts'
import type { GitNetwork } from '../builds/git/remote.ts'
import { unavailable } from '../lib/errors.ts'
import { exec } from '../lib/exec.ts'
import type { Log } from '../lib/log.ts'
import { createOutbound, type Outbound } from '../lib/net/outbound.ts'

const source = new URL('../../../examples/hello/', import.meta.url).pathname
export const samplePath = '/samples/hello.git'

/** Access to git hosts: the only address of our own that needs no permission is the sample's. */
export const reachSample = (outbound: Outbound, sampleUrl: string): GitNetwork => {
  const { origin, host } = new URL(sampleUrl)
  const own = createOutbound({ allow: [host] })
  // Compares the address that a request would use: `/samples/hello.git/../..` is another address.
  const networkOf = (text: string | URL): Outbound => {
    const url = new URL(text)
    return url.origin === origin && `${url.pathname}/`.startsWith(`${samplePath}/`) ? own : outbound
  }
  return { check: (url) => networkOf(url).check(url), open: (request) => networkOf(request.url).open(request) }
}

const environment = (home: string): Record<string, string> => ({
  PATH: process.env.PATH ?? '/usr/bin:/bin',
  HOME: home,
  GIT_CONFIG_NOSYSTEM: '1',
  // One date and one author: the same files are the same commit on every machine.
  GIT_AUTHOR_NAME: 'Slipway',
  GIT_AUTHOR_EMAIL: 'sample@slipway.invalid',
  GIT_AUTHOR_DATE: '2026-01-01T00:00:00Z',
  GIT_COMMITTER_NAME: 'Slipway',
  GIT_COMMITTER_EMAIL: 'sample@slipway.invalid',
  GIT_COMMITTER_DATE: '2026-01-01T00:00:00Z',
})

const git = async (folder: string, args: readonly string[]): Promise<void> => {
  const result = await exec('git', ['-C', folder, ...args], { env: environment(folder) })
  if (result.code !== 0) throw new Error(`git ${args[0]} failed: ${result.stderr.trim()}`)
}

interface SampleRepository {
  path: string
  /** Serves it: clients are not authenticated. */
  git: Git
}

/** Makes `hello.git` where git's user can read it. */
export const createSampleRepository = async (dataDir: string, log: Log): Promise<SampleRepository> => {
  const place = await openGitPlace(dataDir, log)
  const { samples } = place
  const work = await mkdtemp(join(samples, 'work-'))
  await cp(source, work, { recursive: true })
  await git(work, ['init', '--quiet', '--initial-branch=main', '--shared=0755'])
  await git(work, ['add', '--all'])
  await git(work, ['commit', '--quiet', '--message', 'Hello from Slipway'])
  const bare = join(samples, 'hello.git')
  await rm(bare, { recursive: true, force: true })
  await rename(join(work, '.git'), bare)
  await git(bare, ['config', 'core.bare', 'true'])
  await rm(work, { recursive: true })
  return { path: bare, git: createGit(place) }
}

/** Concurrent clients: they need no token. */
const maxServed = 16

/** Streams the answer of `git upload-pack`, the program that serves fetches and nothing else. */
const uploadPack = (
  { path, git }: SampleRepository,
  request: FastifyRequest,
  reply: FastifyReply,
  advertise: boolean,
): Promise<unknown> => {
  const mode = advertise ? ['--advertise-refs'] : []
  const { input, output } = git.talk(['upload-pack', '--stateless-rpc', ...mode, path], {
    config: [['safe.directory', '*']],
    env: { GIT_PROTOCOL: request.headers['git-protocol'] === 'version=2' ? 'version=2' : '' },
  })
  const { raw } = reply.hijack()
  const kind = advertise ? 'advertisement' : 'result'
  raw.writeHead(200, { 'content-type': `application/x-git-upload-pack-${kind}`, 'cache-control': 'no-cache' })
  if (advertise) raw.write('001e# service=git-upload-pack\n0000')
  if (advertise) input.end()
  else if (request.headers['content-encoding'] === 'gzip')
    pipeline(request.raw, createGunzip(), input).catch(() => output.destroy())
  else request.raw.pipe(input)
  return pipeline(output, raw).catch(() => raw.destroy())
}

/** Serves the sample's repository; needs no token, because it is public. */
export const serveSample = async (api: FastifyInstance, repository: SampleRepository): Promise<void> => {
  let served = 0
  const serve = (request: FastifyRequest, reply: FastifyReply, advertise: boolean): void => {
    if (served >= maxServed)
      throw unavailable('busy', 'Too many clients are fetching the sample: try again in a moment.')
    served += 1
    uploadPack(repository, request, reply, advertise).finally(() => {
      served -= 1
    })
  }
  await api.register(async (scope) => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('application/x-git-upload-pack-request', (_request, _payload, done) => done(null))
    scope.get(`${samplePath}/info/refs`, (request, reply) => {
      const { service } = request.query as { service?: string }
      if (service !== 'git-upload-pack')
        return reply.code(403).send({ status: 403, error: 'Forbidden', message: 'Read only.' })
      serve(request, reply, true)
    })
    scope.post(`${samplePath}/git-upload-pack`, (request, reply) => {
      serve(request, reply, false)
    })
  })
}
