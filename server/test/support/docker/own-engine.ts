/**
 * A Docker engine of the test's own, in a folder of its own, which may be restarted while others use the machine's. It
 * leaves the firewall alone (two engines would take each other's rules away), so its containers reach no outside; and
 * it has a bridge of its own, because an engine without one removes that of the machine's engine.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createEngine, type Engine } from '../../../src/lib/docker/docker-engine.ts'
import { defaultConnection } from '../../../src/lib/docker/engine-connection.ts'
import { exec } from '../../../src/lib/exec.ts'
import { until } from '../until.ts'
import { engine as shared } from './docker.ts'

const program = ['/usr/sbin/dockerd', '/usr/bin/dockerd'].find((path) => existsSync(path))

export const ownEngineIsMissing: string | false =
  program === undefined ? 'dockerd is not installed' : process.getuid?.() === 0 ? false : 'dockerd needs root'

export interface OwnEngine {
  /** For DOCKER_HOST. */
  host: string
  engine: Engine
  /** Copies an image of the machine's engine. */
  load(image: string): Promise<void>
  /** Ends it as the system does, which ends its containers too, and starts it again. */
  restart(): Promise<void>
  close(): Promise<void>
}

const ip = async (...args: string[]): Promise<void> => {
  const { code, stderr } = await exec('ip', args, { env: { PATH: process.env.PATH ?? '' } })
  if (code !== 0) throw new Error(`ip ${args.join(' ')}: ${stderr}`)
}

/** A bridge with an unused address: 198.18.0.0/15 is for tests. */
const addBridge = async (): Promise<string> => {
  const random = randomBytes(2)
  const name = `slw-${random.toString('hex')}`
  await ip('link', 'add', name, 'type', 'bridge')
  await ip('address', 'add', `198.18.${random[0]}.${(random[1]! & 0xf0) + 1}/28`, 'dev', name)
  await ip('link', 'set', name, 'up')
  return name
}

const flagsOf = (folder: string, dataRoot: string, host: string, bridge: string): string[] => [
  ...['--config-file', join(folder, 'daemon.json'), '--host', host, '--pidfile', join(folder, 'pid')],
  ...['--data-root', dataRoot, '--exec-root', join(folder, 'exec')],
  ...['--bridge', bridge, '--iptables=false', '--ip-masq=false', '--ip-forward=false'],
]

const end = async (child: ChildProcess): Promise<void> => {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exit = once(child, 'exit')
  child.kill('SIGTERM')
  await exit
}

/** `dataRoot`: a folder for what it keeps, instead of one that goes with it. */
export const startOwnEngine = async ({ dataRoot }: { dataRoot?: string } = {}): Promise<OwnEngine> => {
  const folder = mkdtempSync(join(tmpdir(), 'engine-'))
  const data = dataRoot ?? join(folder, 'data')
  const bridge = await addBridge()
  const host = `unix://${join(folder, 'socket')}`
  writeFileSync(join(folder, 'daemon.json'), '{}')
  const engine = createEngine(defaultConnection(host))
  const log = join(folder, 'log')
  let child: ChildProcess
  const start = async (): Promise<void> => {
    const output = openSync(log, 'a')
    child = spawn(program!, flagsOf(folder, data, host, bridge), { stdio: ['ignore', output, output] })
    await until(
      async () => {
        if (child.exitCode !== null) throw new Error(`dockerd ended:\n${readFileSync(log, 'utf8').slice(-2000)}`)
        return engine.call('GET', '/version').catch(() => null)
      },
      { timeoutMs: 60_000, what: 'an engine of our own' },
    )
  }
  await start()
  return {
    host,
    engine,
    async load(image) {
      const archive = await shared.stream('GET', `/images/${image}/get`)
      const headers = { 'content-type': 'application/x-tar' }
      const answer = await engine.stream('POST', '/images/load', { body: archive, headers, deadlineMs: 120_000 })
      await answer.resume().toArray()
    },
    async restart() {
      await end(child)
      await start()
    },
    async close() {
      await engine.close()
      await end(child)
      await ip('link', 'delete', bridge)
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
