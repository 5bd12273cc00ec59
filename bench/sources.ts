/**
 * What the deployments are made from: a repository on a local git server, with a web site of one page in busybox's
 * httpd, and the image that the floors run. Every image of this repository carries the label `slipway.bench=1`.
 */
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { exec } from '../server/src/lib/exec.ts'
import { ensureBusybox } from '../server/test/busybox-image.ts'
import type { Bench } from './bench.ts'
import { startGitServer } from './git-server.ts'

export interface Sources {
  /** HTTP address of the repository. */
  url: string
  /** Image of the site, ready to run on port 8080. */
  image: string
  /** Pushes a version of the site whose page holds `text`; gives the commit's id. */
  publish(text: string): Promise<string>
  stop(): Promise<void>
}

const dockerfile = `FROM busybox:1
LABEL slipway.bench=1
COPY www /www
EXPOSE 8080
CMD ["httpd", "-f", "-p", "8080", "-h", "/www"]
`

/** Starts, but never listens: for what must not become ready. */
const neverReady = `FROM busybox:1
LABEL slipway.bench=1
CMD ["sleep", "3600"]
`

/** Answers after 300 ms, whatever the method. */
const slow = `#!/bin/sh
sleep 0.3
printf 'Content-Type: text/plain\\r\\n\\r\\nslow\\n'
`

const author = {
  GIT_AUTHOR_NAME: 'bench',
  GIT_AUTHOR_EMAIL: 'bench@localhost',
  GIT_COMMITTER_NAME: 'bench',
  GIT_COMMITTER_EMAIL: 'bench@localhost',
  GIT_CONFIG_GLOBAL: '/dev/null',
  PATH: process.env.PATH ?? '/usr/bin:/bin',
}

const git = async (cwd: string, ...args: string[]): Promise<string> => {
  const { code, stdout, stderr } = await exec('git', args, { cwd, env: author, timeoutMs: 30_000 })
  if (code !== 0) throw new Error(`git ${args[0]}: ${stderr.trim()}`)
  return stdout.trim()
}

const layOut = (tree: string): void => {
  mkdirSync(join(tree, 'www/cgi-bin'), { recursive: true })
  writeFileSync(join(tree, 'Dockerfile'), dockerfile)
  writeFileSync(join(tree, 'Dockerfile.never'), neverReady)
  writeFileSync(join(tree, 'www/cgi-bin/slow'), slow)
  chmodSync(join(tree, 'www/cgi-bin/slow'), 0o755)
}

export const startSources = async (bench: Bench): Promise<Sources> => {
  await ensureBusybox()
  const root = join(bench.folder, 'git')
  const tree = join(bench.folder, 'tree')
  mkdirSync(root, { recursive: true })
  await git(bench.folder, 'init', '--quiet', '--bare', '--initial-branch=main', join(root, 'site.git'))
  await git(bench.folder, 'clone', '--quiet', join(root, 'site.git'), tree)
  layOut(tree)
  const publish = async (text: string): Promise<string> => {
    writeFileSync(join(tree, 'www/index.html'), `${text}\n`)
    await git(tree, 'add', '--all')
    await git(tree, 'commit', '--quiet', '--message', `Say ${text}`)
    await git(tree, 'push', '--quiet', 'origin', 'HEAD:main')
    return git(tree, 'rev-parse', 'HEAD')
  }
  await publish('first')
  const image = 'slipway-bench-site:1'
  const built = await exec('docker', ['build', '--quiet', '--tag', image, tree], {
    env: { PATH: author.PATH, HOME: '/nonexistent', DOCKER_BUILDKIT: '0' },
    timeoutMs: 60_000,
  })
  if (built.code !== 0) throw new Error(`docker build: ${built.stderr.trim()}`)
  const server = await startGitServer(root)
  return { url: `${server.origin}/site.git`, image, publish, stop: server.stop }
}
