/**
 * A git host for tests: bare repositories in a temporary folder, served over smart HTTP by `git http-backend` on a free
 * port of loopback, with the faults a git host can have. Commits are made without a work tree.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { exec } from '../../../src/lib/exec.ts'

/** Text, or bytes, or a symbolic link, or a file with a mode such as `100755`; null removes the file. */
export type FileContent = string | Buffer | { symlink: string } | { text: string; mode: string } | null

/** `hang`: no answer. `redirect`: to the given address. `endless`: an answer that never ends. */
export type Fault = { kind: 'hang' } | { kind: 'redirect'; to: string } | { kind: 'endless' } | null

export interface GitServer {
  origin: string
  url(name: string): string
  createRepository(name: string): Promise<void>
  /** Changes `files` in the branch (default `main`) and answers the new commit's id. */
  commit(
    name: string,
    files: Record<string, FileContent>,
    message: string,
    options?: { branch?: string },
  ): Promise<string>
  /** A light tag, or one with a message. */
  tag(name: string, tag: string, commitId: string, message?: string): Promise<void>
  deleteBranch(name: string, branch: string): Promise<void>
  /** Runs git in the repository, for what no honest client makes; answers its output without the outer blanks. */
  git(name: string, args: readonly string[], input?: string | Buffer): Promise<string>
  /** From now on; null ends it. */
  /** Cuts what hangs. */
  setFault(fault: Fault): void
  /** `GET /info/refs` and `POST /git-upload-pack` so far, in order. */
  requests: string[]
  close(): Promise<void>
}

const author = { name: 'Test', email: 'test@slipway.invalid', date: '2026-01-02T03:04:05+02:00' }

const environment = (root: string): Record<string, string> => ({
  PATH: process.env.PATH ?? '/usr/bin:/bin',
  HOME: root,
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_AUTHOR_NAME: author.name,
  GIT_AUTHOR_EMAIL: author.email,
  GIT_AUTHOR_DATE: author.date,
  GIT_COMMITTER_NAME: author.name,
  GIT_COMMITTER_EMAIL: author.email,
  GIT_COMMITTER_DATE: author.date,
})

const run = async (
  root: string,
  args: readonly string[],
  options: { input?: string | Buffer; index?: string } = {},
) => {
  const env = { ...environment(root), ...(options.index === undefined ? {} : { GIT_INDEX_FILE: options.index }) }
  const result = await exec('git', args, { env, cwd: root, input: options.input, timeoutMs: 60_000 })
  if (result.code !== 0) throw new Error(`git ${args.join(' ')}: ${result.stderr.trim()}`)
  return result.stdout.trim()
}

const describe = (content: Exclude<FileContent, null>): { mode: string; bytes: string | Buffer } => {
  if (typeof content === 'string' || Buffer.isBuffer(content)) return { mode: '100644', bytes: content }
  return 'symlink' in content ? { mode: '120000', bytes: content.symlink } : { mode: content.mode, bytes: content.text }
}

const indexLine = async (root: string, repository: string, path: string, content: FileContent): Promise<string> => {
  if (content === null) return `0 ${'0'.repeat(40)}\t${path}\n`
  const { mode, bytes } = describe(content)
  const id = await run(root, ['--git-dir', repository, 'hash-object', '-w', '--stdin'], { input: bytes })
  return `${mode} ${id}\t${path}\n`
}

const sendHead = (response: ServerResponse, head: string): void => {
  let status = 200
  for (const line of head.split(/\r?\n/)) {
    const colon = line.indexOf(':')
    const name = line.slice(0, colon).toLowerCase()
    if (name === 'status') status = Number.parseInt(line.slice(colon + 1), 10)
    else if (colon > 0) response.setHeader(name, line.slice(colon + 1).trim())
  }
  response.writeHead(status)
}

const serveBackend = (
  root: string,
  request: IncomingMessage,
  response: ServerResponse,
  body: Readable = request,
): void => {
  const url = new URL(request.url ?? '/', 'http://git')
  const child = spawn('git', ['http-backend'], {
    env: {
      ...environment(root),
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: '1',
      REQUEST_METHOD: request.method ?? 'GET',
      PATH_INFO: decodeURIComponent(url.pathname),
      QUERY_STRING: url.search.slice(1),
      CONTENT_TYPE: request.headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: String(request.headers['content-encoding'] ?? ''),
      GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
    },
    stdio: ['pipe', 'pipe', 'ignore'],
  })
  child.on('error', () => response.destroy())
  child.stdin.on('error', () => {})
  body.pipe(child.stdin)
  response.on('close', () => child.kill())
  let seen = Buffer.alloc(0)
  const onData = (chunk: Buffer): void => {
    seen = Buffer.concat([seen, chunk])
    const end = seen.indexOf('\r\n\r\n')
    if (end < 0) return
    child.stdout.off('data', onData)
    sendHead(response, seen.toString('latin1', 0, end))
    response.write(seen.subarray(end + 4))
    child.stdout.pipe(response)
  }
  child.stdout.on('data', onData)
}

/** A pack that never ends, in the side band of an answer to a fetch; refs are served as they are. */
const serveEndless = (response: ServerResponse): void => {
  response.writeHead(200, { 'content-type': 'application/x-git-upload-pack-result' })
  const blob = Buffer.alloc(60_000, 'x')
  const line = (payload: Buffer): Buffer =>
    Buffer.concat([Buffer.from((payload.length + 4).toString(16).padStart(4, '0')), payload])
  response.write(line(Buffer.from('packfile\n')))
  // A pack of two objects, the first of which claims to be a blob without an end in sight.
  const head = Buffer.from([0x50, 0x41, 0x43, 0x4b, 0, 0, 0, 2, 0, 0, 0, 2])
  response.write(line(Buffer.concat([Buffer.from([1]), head, Buffer.from([0xbf, 0xff, 0xff, 0xff, 0xff, 0x7f])])))
  // zlib, then stored blocks of 60 000 bytes.
  response.write(line(Buffer.from([1, 0x78, 0x01])))
  const stored = Buffer.from([0, blob.length & 255, blob.length >> 8, ~blob.length & 255, (~blob.length >> 8) & 255])
  const more = (): void => {
    while (!response.destroyed) if (!response.write(line(Buffer.concat([Buffer.from([1]), stored, blob])))) break
  }
  response.on('drain', more)
  more()
}

const isAllowed = (request: IncomingMessage, auth: { username: string; password: string } | undefined): boolean =>
  auth === undefined ||
  request.headers.authorization === `Basic ${Buffer.from(`${auth.username}:${auth.password}`).toString('base64')}`

export const startGitServer = async (
  options: {
    auth?: { username: string; password: string }
    /** Gets what is asked below `/<name>.git/info/lfs/`. */
    lfs?: (request: IncomingMessage, response: ServerResponse) => void
  } = {},
): Promise<GitServer> => {
  const root = await mkdtemp(join(tmpdir(), 'slipway-git-'))
  const requests: string[] = []
  let fault: Fault = null
  const hanging = new Set<ServerResponse>()
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${(request.url ?? '').replace(/^\/[^/]+/, '')}`)
    if (fault?.kind === 'hang') return void hanging.add(response)
    if (fault?.kind === 'redirect') return void response.writeHead(302, { location: fault.to + request.url }).end()
    if (!isAllowed(request, options.auth))
      return void response.writeHead(401, { 'www-authenticate': 'Basic realm="git"' }).end()
    if (options.lfs !== undefined && request.url?.includes('.git/info/lfs/')) return options.lfs(request, response)
    if (fault?.kind !== 'endless' || request.method !== 'POST') return serveBackend(root, request, response)
    let asked = ''
    request.setEncoding('latin1').on('data', (text: string) => {
      asked += text
    })
    request.on('end', () => {
      if (asked.includes('command=fetch')) serveEndless(response)
      else serveBackend(root, request, response, Readable.from([Buffer.from(asked, 'latin1')]))
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  const origin = `http://127.0.0.1:${port}`
  const folder = (name: string) => join(root, `${name}.git`)
  let made = 0

  return {
    origin,
    requests,
    url: (name) => `${origin}/${name}.git`,
    async createRepository(name) {
      await run(root, ['init', '--quiet', '--bare', '--initial-branch=main', folder(name)])
      await run(root, ['--git-dir', folder(name), 'config', 'uploadpack.allowReachableSHA1InWant', 'true'])
    },
    async commit(name, files, message, { branch = 'main' } = {}) {
      made += 1
      const [repository, index] = [folder(name), join(root, `index-${made}`)]
      const ref = `refs/heads/${branch}`
      const git = (args: string[], input?: string) => run(root, ['--git-dir', repository, ...args], { input, index })
      const parent = await git(['rev-parse', '--verify', '--quiet', ref]).catch(() => null)
      if (parent !== null) await git(['read-tree', parent])
      const lines: string[] = []
      for (const [path, content] of Object.entries(files)) lines.push(await indexLine(root, repository, path, content))
      await git(['update-index', '--add', '--index-info'], lines.join(''))
      const tree = await git(['write-tree'])
      const id = await git(['commit-tree', tree, ...(parent === null ? [] : ['-p', parent])], message)
      await git(['update-ref', ref, id])
      await rm(index, { force: true })
      return id
    },
    async tag(name, tag, commitId, message) {
      const words = message === undefined ? [tag] : ['-a', '-m', message, tag]
      await run(root, ['--git-dir', folder(name), 'tag', ...words, commitId])
    },
    async deleteBranch(name, branch) {
      await run(root, ['--git-dir', folder(name), 'update-ref', '-d', `refs/heads/${branch}`])
    },
    git: (name, args, input) => run(root, ['--git-dir', folder(name), ...args], { input }),
    setFault(next) {
      fault = next
      for (const response of hanging) response.destroy()
      hanging.clear()
    },
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
      await rm(root, { recursive: true, force: true })
    },
  }
}
