/**
 * Another machine with a Docker engine, as far as a kernel that is shared allows: processes, mounts and networks of its
 * own, with docker0, firewall and /run of its own, at an address that this machine reaches. Its engine listens on TCP
 * with TLS; an ssh server lets one key in. Whatever happens, all of it ends with its first process.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createEngine, type Engine } from '../../../src/lib/docker/docker-engine.ts'
import { exec } from '../../../src/lib/exec.ts'
import { createAuthority } from '../peers/certificates.ts'
import { until } from '../until.ts'
import { engine as shared } from './docker.ts'

const env = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' }
const folders = env.PATH.split(':')
const find = (name: string): string | undefined =>
  folders.map((folder) => join(folder, name)).find((path) => existsSync(path))

const needed = ['dockerd', 'docker-init', 'unshare', 'nsenter', 'ip', 'iptables', 'openssl', 'mount']
const missing = needed.filter((name) => find(name) === undefined)

/** Why there can be no other machine here; false when there can be one. */
export const otherMachineIsMissing: string | false =
  process.getuid?.() !== 0 ? 'needs root' : missing.length > 0 ? `not installed: ${missing.join(', ')}` : false

/** Why it cannot be reached over ssh. */
export const sshIsMissing: string | false =
  find('sshd') === undefined || find('ssh-keygen') === undefined ? 'openssh-server is not installed' : false

export interface OtherMachine {
  /** Address of the machine, and of this one as it sees it. */
  address: string
  here: string
  /** To look at it past the product. */
  engine: Engine
  tls: { url: string; ca: string; cert: string; key: string }
  /** Absent where `sshIsMissing`. */
  ssh?: { url: string; privateKey: string; hostKey: string }
  /** Copies an image of this machine's engine. */
  load(image: string): Promise<void>
  /** Ends the engine as a crash does: its containers keep running. */
  killEngine(): Promise<void>
  /** Ends the engine as the system does, which ends its containers too. */
  stopEngine(): Promise<void>
  startEngine(): Promise<void>
  /** Runs a program there, to its end. */
  run(...command: string[]): Promise<string>
  close(): Promise<void>
}

const runHere = async (file: string, ...args: string[]): Promise<string> => {
  const { code, stdout, stderr } = await exec(file, args, { env, timeoutMs: 30_000 })
  if (code !== 0) throw new Error(`${file} ${args.join(' ')}: ${stderr || stdout}`)
  return stdout
}

/** Unused addresses: 198.18.0.0/15 is for tests, and two machines of one test differ. */
const chooseNetwork = () => {
  const random = randomBytes(2)
  const base = `198.19.${random[0]}`
  const last = random[1]! & 0xfc
  return { link: `slw-${random.toString('hex')}`, here: `${base}.${last + 1}`, there: `${base}.${last + 2}` }
}

type Network = ReturnType<typeof chooseNetwork>

/** Answers the id of its first process, which the kernel does not outlive any other of its processes. */
const startFirst = async (folder: string): Promise<{ outer: ChildProcess; first: string }> => {
  const kinds = ['--net', '--mount', '--pid', '--ipc', '--uts', '--fork', '--kill-child', '--mount-proc']
  const output = openSync(join(folder, 'first.log'), 'a')
  const outer = spawn('unshare', [...kinds, find('docker-init')!, '--', 'sleep', 'infinity'], {
    env,
    stdio: ['ignore', output, output],
  })
  const first = await until(
    () => {
      if (outer.exitCode !== null) throw new Error(readFileSync(join(folder, 'first.log'), 'utf8'))
      return readFileSync(`/proc/${outer.pid}/task/${outer.pid}/children`, 'utf8').trim() || null
    },
    { what: 'its first process' },
  )
  return { outer, first }
}

const enter = (first: string): string[] => ['--target', first, '--net', '--mount', '--pid', '--ipc', '--uts', '--']

const connectMachine = async ({ link, here, there }: Network, first: string): Promise<void> => {
  const inside = (...command: string[]) => runHere('nsenter', ...enter(first), ...command)
  await runHere('ip', 'link', 'add', link, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', first)
  await runHere('ip', 'address', 'add', `${here}/30`, 'dev', link)
  await runHere('ip', 'link', 'set', link, 'up')
  await inside('ip', 'address', 'add', `${there}/30`, 'dev', 'eth0')
  await inside('ip', 'link', 'set', 'eth0', 'up')
  await inside('ip', 'link', 'set', 'lo', 'up')
  await inside('ip', 'route', 'add', 'default', 'via', here)
  await inside('mount', '-t', 'tmpfs', 'tmpfs', '/run')
  await inside('mkdir', '/run/sshd')
  // Where engines keep what tells them apart.
  if (existsSync('/etc/docker')) await inside('mount', '-t', 'tmpfs', 'tmpfs', '/etc/docker')
}

/** The certificates of the engine and of its client; the engine's is left in the folder. */
const createCertificates = async (folder: string, address: string) => {
  const authority = await createAuthority()
  try {
    const [server, client] = await Promise.all([authority.sign(`IP:${address}`), authority.sign()])
    const files = { 'ca.pem': authority.ca, 'server.pem': server.cert, 'server-key.pem': server.key }
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text, { mode: 0o600 })
    return { ca: authority.ca, ...client }
  } finally {
    authority.close()
  }
}

const engineFlags = (folder: string, socket: string, address: string): string[] => [
  ...['--config-file', join(folder, 'daemon.json'), '--pidfile', join(folder, 'pid')],
  ...['--host', `unix://${socket}`, '--host', 'unix:///run/docker.sock', '--host', `tcp://${address}:2376`],
  ...['--tlsverify', '--tlscacert', join(folder, 'ca.pem')],
  ...['--tlscert', join(folder, 'server.pem'), '--tlskey', join(folder, 'server-key.pem')],
  ...['--data-root', join(folder, 'data'), '--exec-root', join(folder, 'exec'), '--group', 'root'],
]

const serverConfig = (folder: string, address: string): string =>
  [
    `ListenAddress ${address}:22`,
    `HostKey ${join(folder, 'host')}`,
    `AuthorizedKeysFile ${join(folder, 'user.pub')}`,
    'PidFile none',
    'StrictModes no',
    'UsePAM no',
    'PermitRootLogin prohibit-password',
    'PasswordAuthentication no',
    'KbdInteractiveAuthentication no',
    'AllowStreamLocalForwarding yes',
    '',
  ].join('\n')

const startSsh = async (folder: string, address: string, first: string): Promise<OtherMachine['ssh']> => {
  if (sshIsMissing !== false) return undefined
  for (const name of ['host', 'user'])
    await runHere('ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', name, '-f', join(folder, name))
  writeFileSync(join(folder, 'sshd.conf'), serverConfig(folder, address))
  const output = openSync(join(folder, 'sshd.log'), 'a')
  const args = [...enter(first), find('sshd')!, '-D', '-e', '-f', join(folder, 'sshd.conf')]
  spawn('nsenter', args, { env, stdio: ['ignore', output, output] })
  const [type, key] = readFileSync(join(folder, 'host.pub'), 'utf8').split(' ')
  await until(() => readFileSync(join(folder, 'sshd.log'), 'utf8').includes('Server listening'), {
    what: 'the ssh server',
  })
  return {
    url: `ssh://root@${address}`,
    privateKey: readFileSync(join(folder, 'user'), 'utf8'),
    hostKey: `${type} ${key}`,
  }
}

/** The engine there: a process that comes and goes. */
const createDaemon = (folder: string, address: string, first: string) => {
  const socket = join(folder, 'socket')
  const engine = createEngine({ kind: 'local', socketPath: socket })
  const log = join(folder, 'dockerd.log')
  let child: ChildProcess | undefined
  const isRunning = (): boolean => child !== undefined && child.exitCode === null && child.signalCode === null
  /** To the daemon itself: nsenter has become it. */
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    if (!isRunning()) return
    const exit = once(child!, 'exit')
    const [daemon] = readFileSync(`/proc/${child!.pid}/task/${child!.pid}/children`, 'utf8').trim().split(' ')
    process.kill(Number(daemon), signal)
    await exit
  }
  const start = async (): Promise<void> => {
    const output = openSync(log, 'a')
    const command = [...enter(first), find('dockerd')!, ...engineFlags(folder, socket, address)]
    child = spawn('nsenter', command, { env, stdio: ['ignore', output, output] })
    await until(
      async () => {
        if (!isRunning()) throw new Error(`dockerd ended:\n${readFileSync(log, 'utf8').slice(-2000)}`)
        return engine.call('GET', '/version').catch(() => null)
      },
      { timeoutMs: 60_000, what: 'the engine of the other machine' },
    )
  }
  return { engine, start, end }
}

/** `insecureRegistries`: as its engine's setting of that name. */
export const startOtherMachine = async (insecureRegistries: readonly string[] = []): Promise<OtherMachine> => {
  const folder = mkdtempSync(join(tmpdir(), 'machine-'))
  writeFileSync(join(folder, 'daemon.json'), JSON.stringify({ 'insecure-registries': insecureRegistries }))
  const network = chooseNetwork()
  const { here, there: address } = network
  const { outer, first } = await startFirst(folder)
  const { engine, start, end } = createDaemon(folder, address, first)
  const remove = async (): Promise<void> => {
    await engine.close()
    await end('SIGTERM').catch(() => {})
    const exit = once(outer, 'exit')
    process.kill(Number(first), 'SIGKILL')
    await exit
    rmSync(folder, { recursive: true, force: true })
  }
  try {
    await connectMachine(network, first)
    const tls = { url: `tcp://${address}:2376`, ...(await createCertificates(folder, address)) }
    const [ssh] = await Promise.all([startSsh(folder, address, first), start()])
    return {
      ...{ address, here, engine, tls, startEngine: start, close: remove },
      ...(ssh === undefined ? {} : { ssh }),
      async load(image) {
        const archive = await shared.stream('GET', `/images/${image}/get`)
        const headers = { 'content-type': 'application/x-tar' }
        const answer = await engine.stream('POST', '/images/load', { body: archive, headers, deadlineMs: 120_000 })
        await answer.resume().toArray()
      },
      killEngine: () => end('SIGKILL'),
      stopEngine: () => end('SIGTERM'),
      run: (...command) => runHere('nsenter', ...enter(first), ...command),
    }
  } catch (error) {
    await remove()
    throw error
  }
}
