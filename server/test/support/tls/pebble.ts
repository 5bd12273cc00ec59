/**
 * Pebble, the ACME server of Let's Encrypt for tests (Debian's package `pebble`), with its own name server, which says of
 * every name that it is this machine. Everything on loopback and on free ports.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { request } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from '../slipway/slipway.ts'
import { until } from '../until.ts'
import { createTestCa } from './test-ca.ts'

const programs = ['/usr/bin/pebble', '/usr/bin/pebble-challtestsrv']

/** Why tests with it are skipped; false if it is there. */
export const withoutPebble = programs.every((path) => existsSync(path))
  ? false
  : 'pebble is not installed: apt-get install pebble'

export interface Pebble {
  directory: string
  /** A file with what the directory's own certificate is issued by. */
  caFile: string
  /** The same as text. */
  ca: string
  /** The root of what it issues, PEM. */
  root(): Promise<string>
  /** Where its name server says that a host is. */
  moveHost(host: string, address: string): Promise<void>
  /** It stops answering, and answers again. */
  pause(): void
  resume(): void
  close(): Promise<void>
}

/** `httpPort` and `tlsPort`: where it asks for challenges; `dnsPort`: that of another name server on this machine. */
export const startPebble = async ({
  dnsPort,
  ...place
}: {
  httpPort: number
  tlsPort: number
  dnsPort?: number
}): Promise<Pebble> => {
  const folder = await mkdtemp(join(tmpdir(), 'pebble-'))
  const [port, management, dns, dnsManagement] = [
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
  ]
  const ca = await createTestCa()
  const own = await ca.issue('localhost')
  const caFile = join(folder, 'ca.pem')
  await Promise.all([
    writeFile(caFile, ca.certificate),
    writeFile(join(folder, 'cert.pem'), own.certificate),
    writeFile(join(folder, 'key.pem'), own.key, { mode: 0o600 }),
    writeFile(
      join(folder, 'config.json'),
      JSON.stringify({
        pebble: {
          listenAddress: `127.0.0.1:${port}`,
          managementListenAddress: `127.0.0.1:${management}`,
          certificate: join(folder, 'cert.pem'),
          privateKey: join(folder, 'key.pem'),
          ...place,
          ocspResponderURL: '',
          externalAccountBindingRequired: false,
        },
      }),
    ),
  ])
  const env = { PEBBLE_VA_SLEEPTIME: '2', PEBBLE_WFE_NONCEREJECT: '20', PEBBLE_AUTHZREUSE: '0' }
  const start = (program: string, args: string[]): ChildProcess => {
    const child = spawn(program, args, { env, stdio: ['ignore', 'ignore', 'ignore'] })
    child.on('error', () => {})
    return child
  }
  const names = start(programs[1]!, [
    ...['-dns01', `127.0.0.1:${dns}`, '-management', `127.0.0.1:${dnsManagement}`, '-defaultIPv6', ''],
    ...['-http01', '', '-https01', '', '-tlsalpn01', ''],
  ])
  const server = start(programs[0]!, [
    '-config',
    join(folder, 'config.json'),
    '-dnsserver',
    `127.0.0.1:${dnsPort ?? dns}`,
  ])

  const get = async (at: number, path: string): Promise<string> => {
    const out = request({
      host: '127.0.0.1',
      servername: 'localhost',
      port: at,
      path,
      ca: ca.certificate,
      agent: false,
    })
    out.end()
    const [answer] = await once(out, 'response')
    let text = ''
    for await (const chunk of answer.setEncoding('utf8')) text += chunk
    return text
  }
  const pebble: Pebble = {
    directory: `https://localhost:${port}/dir`,
    caFile,
    ca: ca.certificate,
    async moveHost(host, address) {
      const body = JSON.stringify({ host, addresses: [address] })
      // Addresses are added to those that are there.
      for (const step of ['clear-a', 'add-a']) {
        const { ok } = await fetch(`http://127.0.0.1:${dnsManagement}/${step}`, { method: 'POST', body })
        if (!ok) throw new Error('the name server did not take the address')
      }
    },
    root: () => get(management, '/roots/0'),
    pause: () => void server.kill('SIGSTOP'),
    resume: () => void server.kill('SIGCONT'),
    async close() {
      server.kill('SIGCONT')
      for (const child of [server, names]) {
        const end = once(child, 'exit')
        if (child.exitCode === null && child.signalCode === null && child.kill('SIGKILL')) await end
      }
      await rm(folder, { recursive: true, force: true })
    },
  }
  const isUp = async () => (await get(port, '/dir').catch(() => '')).includes('newOrder')
  await until(isUp, { what: 'pebble', timeoutMs: 20_000 }).catch(async (error: unknown) => {
    await pebble.close()
    throw error
  })
  return pebble
}
