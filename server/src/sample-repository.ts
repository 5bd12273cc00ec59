/**
 * The sample application as a git repository of our own, read-only, at `/samples/hello.git` of the API's address: the
 * first deployment works where nothing else can be reached. Made anew at each start from `examples/hello`.
 */
import { spawn } from 'node:child_process'
import { cp, mkdir, mkdtemp, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { createGunzip } from 'node:zlib'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { exec } from './lib/exec.ts'

const source = new URL('../../examples/hello/', import.meta.url).pathname
export const samplePath = '/samples/hello.git'

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

/** Makes `<dataDir>/samples/hello.git` and answers its path. */
export const createSampleRepository = async (dataDir: string): Promise<string> => {
  const samples = join(dataDir, 'samples')
  await mkdir(samples, { recursive: true })
  const work = await mkdtemp(join(samples, 'work-'))
  await cp(source, work, { recursive: true })
  await git(work, ['init', '--quiet', '--initial-branch=main'])
  await git(work, ['add', '--all'])
  await git(work, ['commit', '--quiet', '--message', 'Hello from Slipway'])
  const bare = join(samples, 'hello.git')
  await rm(bare, { recursive: true, force: true })
  await rename(join(work, '.git'), bare)
  await git(bare, ['config', 'core.bare', 'true'])
  await rm(work, { recursive: true })
  return bare
}

/** Streams the answer of `git upload-pack`, the program that serves fetches and nothing else. */
const uploadPack = (repository: string, request: FastifyRequest, reply: FastifyReply, advertise: boolean): void => {
  const mode = advertise ? ['--advertise-refs'] : []
  const protocol = request.headers['git-protocol']
  const child = spawn('git', ['upload-pack', '--stateless-rpc', ...mode, repository], {
    shell: false,
    env: {
      PATH: process.env.PATH ?? '/usr/bin:/bin',
      GIT_PROTOCOL: protocol === 'version=2' ? 'version=2' : '',
      GIT_CONFIG_COUNT: '1',
      GIT_CONFIG_KEY_0: 'safe.directory',
      GIT_CONFIG_VALUE_0: '*',
    },
    stdio: ['pipe', 'pipe', 'ignore'],
  })
  const { raw } = reply.hijack()
  const kind = advertise ? 'advertisement' : 'result'
  raw.writeHead(200, { 'content-type': `application/x-git-upload-pack-${kind}`, 'cache-control': 'no-cache' })
  if (advertise) raw.write('001e# service=git-upload-pack\n0000')
  child.stdout.pipe(raw)
  raw.on('close', () => child.kill())
  child.on('error', () => raw.destroy())
  child.stdin.on('error', () => {})
  if (advertise) child.stdin.end()
  else if (request.headers['content-encoding'] === 'gzip') request.raw.pipe(createGunzip()).pipe(child.stdin)
  else request.raw.pipe(child.stdin)
}

/** Serves the sample's repository; needs no token, for it is public text. */
export const serveSample = async (api: FastifyInstance, repository: string): Promise<void> => {
  await api.register(async (scope) => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('application/x-git-upload-pack-request', (_request, _payload, done) => done(null))
    scope.get(`${samplePath}/info/refs`, (request, reply) => {
      const { service } = request.query as { service?: string }
      if (service !== 'git-upload-pack')
        return reply.code(403).send({ status: 403, error: 'Forbidden', message: 'Read only.' })
      uploadPack(repository, request, reply, true)
    })
    scope.post(`${samplePath}/git-upload-pack`, (request, reply) => {
      uploadPack(repository, request, reply, false)
    })
  })
}
