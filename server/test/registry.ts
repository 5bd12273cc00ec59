/** A registry of images with a login, on loopback: Debian's docker-registry in a folder of its own. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { engine } from './docker.ts'
import { freePort } from './slipway.ts'
import { until } from './until.ts'

const program = '/usr/bin/docker-registry'

export const login = { username: 'puller', password: 'registry-canary' }
// bcrypt of the password, the one form that the registry reads.
const htpasswd = 'puller:$2y$05$abcdefghijklmnopqrstuuBhh9CmDErShyspNW.nrRsBL/5r0Z5LC\n'

export const registryIsMissing: string | false = existsSync(program) ? false : 'docker-registry is not installed'

export interface Registry {
  /** `127.0.0.1:port` */
  host: string
  url: string
  /** Makes an image of the engine be there under this name and nowhere else. */
  publish(image: string, name: string, tag: string): Promise<void>
  /** Ends it, and takes its images from the engine: what uses them must be gone. */
  close(): Promise<void>
}

/** Takes a name from an image of the engine. */
export const untag = (reference: string): Promise<unknown> =>
  engine.call('DELETE', `/images/${reference}`, { query: { noprune: true } }).catch(() => {})

/** Names of images that came from a registry or went to it. */
const namesOf = async (host: string): Promise<string[]> => {
  const images = await engine.call<Record<'RepoTags' | 'RepoDigests', string[] | null>[]>('GET', '/images/json')
  const names = images.flatMap(({ RepoTags, RepoDigests }) => [...(RepoTags ?? []), ...(RepoDigests ?? [])])
  return names.filter((name) => name.startsWith(`${host}/`))
}

const configOf = (folder: string, host: string) => ({
  version: 0.1,
  log: { level: 'error' },
  storage: { filesystem: { rootdirectory: join(folder, 'data') } },
  http: { addr: host },
  auth: { htpasswd: { realm: 'test', path: join(folder, 'htpasswd') } },
})

const push = async (host: string, name: string, tag: string): Promise<void> => {
  const auth = Buffer.from(JSON.stringify({ ...login, serveraddress: host })).toString('base64url')
  const options = { query: { tag }, headers: { 'x-registry-auth': auth }, deadlineMs: 60_000 }
  const output = await engine.stream('POST', `/images/${host}/${name}/push`, options)
  let text = ''
  for await (const chunk of output) text += chunk
  if (text.includes('"error"')) throw new Error(text.slice(-500))
}

export const startRegistry = async (): Promise<Registry> => {
  const folder = mkdtempSync(join(tmpdir(), 'registry-'))
  const host = `127.0.0.1:${await freePort()}`
  writeFileSync(join(folder, 'htpasswd'), htpasswd)
  writeFileSync(join(folder, 'config.yml'), JSON.stringify(configOf(folder, host)))
  const child = spawn(program, ['serve', join(folder, 'config.yml')], { stdio: 'ignore' })
  const answers = async () => (await fetch(`http://${host}/v2/`).catch(() => null))?.status === 401
  await until(answers, { timeoutMs: 15_000, what: 'the registry' })
  return {
    host,
    url: `http://${host}`,
    async publish(image, name, tag) {
      const repo = `${host}/${name}`
      await engine.call('POST', `/images/${image}/tag`, { query: { repo, tag } })
      await push(host, name, tag)
      await untag(`${repo}:${tag}`)
    },
    async close() {
      const ended = once(child, 'exit')
      child.kill('SIGKILL')
      await ended
      for (const name of await namesOf(host)) await untag(name)
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
