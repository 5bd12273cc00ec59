/** BIND, the name server (Debian's package `bind9`), with one zone that a key may change, on loopback and a free port. */
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { Resolver } from 'node:dns/promises'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from '../slipway/slipway.ts'
import { until } from '../until.ts'

const program = '/usr/sbin/named'

/** Why tests with it are skipped; false if it is there. */
export const withoutBind = existsSync(program) ? false : 'bind is not installed: apt-get install bind9'

export interface Bind {
  port: number
  key: { name: string; secret: string }
  /** The texts of a name; [] without. */
  texts(name: string): Promise<string[]>
  close(): Promise<void>
}

/** Every name of the zone, without records of its own, is this machine. */
export const startBind = async (zone: string): Promise<Bind> => {
  const folder = await mkdtemp(join(tmpdir(), 'bind-'))
  const port = await freePort()
  const key = { name: 'slipway', secret: randomBytes(32).toString('base64') }
  await writeFile(
    join(folder, 'zone'),
    `$TTL 60\n@ IN SOA ns hostmaster 1 60 60 600 0\n@ IN NS ns\n@ IN A 127.0.0.1\nns IN A 127.0.0.1\n* IN A 127.0.0.1\n`,
  )
  const options = `directory "${folder}"; listen-on port ${port} { 127.0.0.1; }; listen-on-v6 { none; };
    pid-file none; session-keyfile none; recursion no; dnssec-validation no; empty-zones-enable no;`
  await writeFile(
    join(folder, 'named.conf'),
    `options { ${options} };
     controls { };
     key "${key.name}" { algorithm hmac-sha256; secret "${key.secret}"; };
     zone "${zone}" { type primary; file "${folder}/zone"; allow-update { key "${key.name}"; }; };\n`,
  )
  const child = spawn(program, ['-g', '-n', '1', '-c', join(folder, 'named.conf')], { stdio: 'ignore' })
  child.on('error', () => {})
  const texts = async (name: string): Promise<string[]> => {
    const resolver = new Resolver({ timeout: 1000, tries: 3 })
    resolver.setServers([`127.0.0.1:${port}`])
    try {
      return (await resolver.resolveTxt(name)).map((parts) => parts.join(''))
    } catch (error) {
      if (['ENODATA', 'ENOTFOUND'].includes((error as NodeJS.ErrnoException).code ?? '')) return []
      throw error
    }
  }
  const bind: Bind = {
    ...{ port, key, texts },
    async close() {
      const end = once(child, 'exit')
      if (child.exitCode === null && child.signalCode === null && child.kill('SIGKILL')) await end
      await rm(folder, { recursive: true, force: true })
    },
  }
  const isUp = () =>
    texts(`up.${zone}`).then(
      () => true,
      () => false,
    )
  await until(isUp, { what: 'bind', timeoutMs: 20_000 }).catch(async (error: unknown) => {
    await bind.close()
    throw error
  })
  return bind
}
