/** A developer's git: a work tree in a temporary folder, and pushes from it with a token as the password. */
import { mkdtempSync } from 'node:fs'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { type ExecResult, exec } from '../../../src/lib/exec.ts'

export interface GitClient {
  folder: string
  /** Runs git; a code other than 0 is a result. */
  git(...args: string[]): Promise<ExecResult>
  /** The same, for what has to succeed; answers its output without the outer blanks. */
  done(...args: string[]): Promise<string>
  /** Writes the files and commits everything; answers the commit's id. */
  commit(files: Record<string, string>, message?: string): Promise<string>
  push(...args: string[]): Promise<ExecResult>
  remove(): Promise<void>
}

/** The address of a repository, with the token in it. */
export const gitUrl = (origin: string, applicationId: string, token: string): string =>
  `${origin.replace('://', `://x:${token}@`)}/git/${applicationId}.git`

export const newGitClient = async (url: string): Promise<GitClient> => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-client-'))
  const env = {
    PATH: process.env.PATH ?? '/usr/bin:/bin',
    HOME: folder,
    LC_ALL: 'C',
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_TERMINAL_PROMPT: '0',
    GIT_AUTHOR_NAME: 'Dev',
    GIT_AUTHOR_EMAIL: 'dev@slipway.invalid',
    GIT_COMMITTER_NAME: 'Dev',
    GIT_COMMITTER_EMAIL: 'dev@slipway.invalid',
  }
  const git = (...args: string[]) => exec('git', ['-C', folder, ...args], { env, timeoutMs: 120_000 })
  const done = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await git(...args)
    if (code !== 0) throw new Error(`git ${args.join(' ')}: ${stderr}`)
    return stdout.trim()
  }
  await done('init', '--quiet', '--initial-branch=main')
  await done('remote', 'add', 'slipway', url)
  return {
    folder,
    git,
    done,
    async commit(files, message = 'a change') {
      for (const [path, text] of Object.entries(files)) {
        await mkdir(dirname(join(folder, path)), { recursive: true })
        await writeFile(join(folder, path), text)
      }
      await done('add', '--all')
      await done('commit', '--quiet', '--allow-empty', '--message', message)
      return done('rev-parse', 'HEAD')
    },
    push: (...args) => git('push', ...(args.length === 0 ? ['slipway', 'main'] : args)),
    remove: () => rm(folder, { recursive: true, force: true }),
  }
}
