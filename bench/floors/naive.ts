/**
 * The naive deployment that a script of four commands does: clone, build with the classic builder, stop the old
 * container, run the new one on the same host port. It never sleeps; it waits for the first 200 of the new version.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { exec } from '../../server/src/lib/exec.ts'
import { untilServing } from './raw.ts'

const environment = {
  PATH: process.env.PATH ?? '/usr/bin:/bin',
  HOME: '/nonexistent',
  DOCKER_BUILDKIT: '0',
  DOCKER_CLI_HINTS: 'false',
  GIT_TERMINAL_PROMPT: '0',
  ...(process.env.DOCKER_HOST === undefined ? {} : { DOCKER_HOST: process.env.DOCKER_HOST }),
}

const run = async (file: string, ...args: string[]): Promise<void> => {
  const { code, stderr } = await exec(file, args, { env: environment, timeoutMs: 60_000 })
  if (code !== 0) throw new Error(`${file} ${args[0]}: ${stderr.trim().slice(-300)}`)
}

export interface NaiveSite {
  name: string
  hostPort: number
}

/** Stops what runs under the site's name and runs `image` there; `accept` knows the new version's body. */
export const replace = async (site: NaiveSite, image: string, accept: (body: string) => boolean): Promise<void> => {
  const { name, hostPort } = site
  await run('docker', 'stop', name).catch(() => {})
  await run('docker', 'rm', '--force', name).catch(() => {})
  const publish = `127.0.0.1:${hostPort}:8080`
  await run('docker', 'run', '--detach', '--init', '--name', name, '--label', 'slipway.bench=1', '-p', publish, image)
  await untilServing(`http://127.0.0.1:${hostPort}/`, accept)
}

/** Source to serving, every step every time. */
export const naiveDeploy = async (
  folder: string,
  gitUrl: string,
  site: NaiveSite,
  accept: (body: string) => boolean,
): Promise<void> => {
  const source = mkdtempSync(join(folder, 'naive-'))
  try {
    await run('git', 'clone', '--quiet', '--depth', '1', gitUrl, join(source, 'repository'))
    await run('docker', 'build', '--quiet', '--tag', site.name, join(source, 'repository'))
    await replace(site, site.name, accept)
  } finally {
    rmSync(source, { recursive: true, force: true })
  }
}
