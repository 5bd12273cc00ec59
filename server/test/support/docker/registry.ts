/** A registry of images with a login, on loopback: Debian's docker-registry in a folder of its own. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Engine } from '../../../src/lib/docker/docker-engine.ts'
import { freePort } from '../slipway/slipway.ts'
import { until } from '../until.ts'
import { engine } from './docker.ts'

const program = '/usr/bin/docker-registry'

export interface Login {
  username: string
  password: string
}

export const login: Login = { username: 'puller', password: 'registry-canary' }

// bcrypt is the one form that the registry reads; made once, with one salt.
const salted = '$2y$05$abcdefghijklmnopqrstuu'
const hashes: [string, string][] = [
  ['pw-of-le', 'AHsaTH87w/B0w0SqamytC.uZaMlDeSa'],
  ['pw-of-len', '13b6M6AxasL.kJNGkHE/ETeVSG8qGze'],
  ['pw-of-leng', 'YSt2mRFqpZL..J.9GlJ7eNNpukRyONW'],
  ['pw-of-lengt', '9FoBjTzGjVmDTgcgOkawww2x/3rN9/q'],
  ['pw-of-length', 'ES4WUb7NLFK/F128IjInKLAJisyYK5y'],
  ['pw-of-length-', 'zYWfe6IQPDURaqsjUMIWRvfO/QWzr4C'],
  ['pw-of-length-0', 'us5VYLVISNTE95IL0m5DwzXE1OatpBG'],
  ['pw-of-length-01', 'IwJxFECVPSsscwA0eViAQIEIUJY5qQ.'],
  ['pw-of-length-012', 'UAR0M8xSQe1gtnHyRRihZqv58hnb9Ce'],
  ['pw-of-length-0123', '9CPxKmmKD1mHHeD8QdGEz0VddM.z3RO'],
  ['pw-of-length-01234', 'U5hpIHMbkT9ClnZPMB3dQ9wWqW5BqdS'],
  ['pw-of-length-012345', 'Cnb770gecoqPx.pVHSw.BVRcxGKzcDi'],
  ['pw-of-length-0123456', 'A//s5zdULmlf/Nogs7WEOKOXPYvIb7y'],
]

/** One for each length from 8 to 20. */
export const logins: Login[] = hashes.map(([password]) => ({ username: `puller-${password.length}`, password }))

const lineOf = ({ username, password }: Login): string =>
  `${username}:${salted}${hashes.find(([known]) => known === password)![1]}`

const htpasswd = [`puller:${salted}Bhh9CmDErShyspNW.nrRsBL/5r0Z5LC`, ...logins.map(lineOf)]

export const registryIsMissing: string | false = existsSync(program) ? false : 'docker-registry is not installed'

export interface Registry {
  /** `127.0.0.1:port` */
  host: string
  url: string
  /** Makes an image of the engine be there under this name and nowhere else. */
  publish(image: string, name: string, tag: string): Promise<void>
  /** Gives a user of the test's own this password, one of those in `logins`, and takes the one that it had. */
  setPassword(login: Login): void
  /** Ends it, and takes its images from the engine: what uses them must be gone. */
  close(): Promise<void>
}

/** Takes a name from an image of the engine. */
export const untag = (reference: string, from: Engine = engine): Promise<unknown> =>
  from.call('DELETE', `/images/${reference}`, { query: { noprune: true } }).catch(() => {})

/** Names of images that came from a registry or went to it. */
const namesOf = async (host: string): Promise<string[]> => {
  const images = await engine.call<Record<'RepoTags' | 'RepoDigests', string[] | null>[]>('GET', '/images/json')
  const names = images.flatMap(({ RepoTags, RepoDigests }) => [...(RepoTags ?? []), ...(RepoDigests ?? [])])
  return names.filter((name) => name.startsWith(`${host}/`))
}

const authOf = (folder: string) => ({ htpasswd: { realm: 'test', path: join(folder, 'htpasswd') } })

const configOf = (folder: string, host: string, isOpen: boolean) => ({
  version: 0.1,
  log: { level: 'error' },
  storage: { filesystem: { rootdirectory: join(folder, 'data') } },
  http: { addr: host },
  ...(isOpen ? {} : { auth: authOf(folder) }),
})

const push = async (from: Engine, host: string, name: string, tag: string): Promise<void> => {
  const auth = Buffer.from(JSON.stringify({ ...login, serveraddress: host })).toString('base64')
  const options = { query: { tag }, headers: { 'x-registry-auth': auth }, deadlineMs: 60_000 }
  const output = await from.stream('POST', `/images/${host}/${name}/push`, options)
  let text = ''
  for await (const chunk of output) text += chunk
  if (text.includes('"error"')) throw new Error(text.slice(-500))
}

/** At another address: one without a login, filled by an engine to which it is an insecure one; or one with a login. */
export const startRegistry = async (at?: { address: string; engine?: Engine }): Promise<Registry> => {
  const folder = mkdtempSync(join(tmpdir(), 'registry-'))
  const host = `${at?.address ?? '127.0.0.1'}:${await freePort()}`
  const from = at?.engine ?? engine
  const isOpen = at?.engine !== undefined
  // The registry reads it again whenever it has changed.
  const admit = (...lines: string[]) => writeFileSync(join(folder, 'htpasswd'), [...htpasswd, ...lines].join('\n'))
  admit()
  writeFileSync(join(folder, 'config.yml'), JSON.stringify(configOf(folder, host, isOpen)))
  const child = spawn(program, ['serve', join(folder, 'config.yml')], { stdio: 'ignore' })
  const answers = async () => (await fetch(`http://${host}/v2/`).catch(() => null))?.status === (isOpen ? 200 : 401)
  await until(answers, { timeoutMs: 15_000, what: 'the registry' })
  return {
    host,
    url: `http://${host}`,
    async publish(image, name, tag) {
      const repo = `${host}/${name}`
      await from.call('POST', `/images/${image}/tag`, { query: { repo, tag } })
      await push(from, host, name, tag)
      await untag(`${repo}:${tag}`, from)
    },
    setPassword: (changed) => admit(lineOf(changed)),
    async close() {
      const ended = once(child, 'exit')
      child.kill('SIGKILL')
      await ended
      for (const name of await namesOf(host)) await untag(name)
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
