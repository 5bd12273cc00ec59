/** An SSH server of the test's own on 127.0.0.1, which lets one key in as the user of this process. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { exec } from '../../../src/lib/exec.ts'
import { until } from '../until.ts'

const program = ['/usr/sbin/sshd', '/usr/bin/sshd'].find((path) => existsSync(path))

export const sshServerIsMissing: string | false = program === undefined ? 'sshd is not installed' : false

export interface SshServer {
  host: string
  port: number
  user: string
  /** The private key that it lets in. */
  key: string
  /** Its own public key, as in known_hosts. */
  hostKeys: string
  /** Shows another host key from now on. */
  changeHostKey(): Promise<void>
  /** Ends it with all its connections; `start` starts it again at its port. */
  stop(): Promise<void>
  start(): Promise<void>
  close(): Promise<void>
}

/** A key pair of ed25519: the private one, and the line of the public one. */
export const makeSshKey = async (path: string): Promise<{ key: string; line: string }> => {
  rmSync(path, { force: true })
  const args = ['-q', '-t', 'ed25519', '-N', '', '-C', 'test', '-f', path]
  const { code, stderr } = await exec('ssh-keygen', args, { env: { PATH: process.env.PATH ?? '' } })
  if (code !== 0) throw new Error(`ssh-keygen: ${stderr}`)
  return { key: readFileSync(path, 'utf8'), line: readFileSync(`${path}.pub`, 'utf8').trim() }
}

/** As docs/guides/connect-an-engine.md has it. */
const restriction = 'restrict,port-forwarding,command="/bin/false"'

const freePort = async (): Promise<number> => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  return port
}

const answers = async (port: number): Promise<boolean> => {
  const socket = connect(port, '127.0.0.1')
  try {
    await once(socket, 'data')
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}

/** The process of every connection is one too, in a session of its own. */
const descendants = (pid: number): number[] => {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number)
  return children.flatMap((child) => [child, ...descendants(child)])
}

const kill = (pid: number): void => {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended meanwhile.
  }
}

const configOf = (folder: string, port: number): string =>
  [
    `Port ${port}`,
    'ListenAddress 127.0.0.1',
    `HostKey ${join(folder, 'host')}`,
    `AuthorizedKeysFile ${join(folder, 'authorized')}`,
    'StrictModes no',
    'UsePAM no',
    'PasswordAuthentication no',
    'PermitRootLogin prohibit-password',
    'AllowStreamLocalForwarding yes',
    `PidFile ${join(folder, 'pid')}`,
  ].join('\n')

export const startSshServer = async (): Promise<SshServer> => {
  const folder = mkdtempSync(join(tmpdir(), 'sshd-'))
  const port = await freePort()
  const host = await makeSshKey(join(folder, 'host'))
  const user = await makeSshKey(join(folder, 'user'))
  writeFileSync(join(folder, 'authorized'), `${restriction} ${user.line}\n`)
  writeFileSync(join(folder, 'config'), configOf(folder, port))
  // As root it wants this folder, which its package makes when the machine starts.
  if (process.getuid?.() === 0) mkdirSync('/run/sshd', { recursive: true, mode: 0o755 })
  let child: ChildProcess | undefined

  const start = async (): Promise<void> => {
    child = spawn(program!, ['-D', '-e', '-f', join(folder, 'config')], { stdio: 'ignore' })
    await until(() => answers(port), { what: 'the SSH server to answer' })
  }
  const stop = async (): Promise<void> => {
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
    const exit = once(child, 'exit')
    for (const pid of [...descendants(child.pid), child.pid]) kill(pid)
    await exit
  }
  await start()
  return {
    host: '127.0.0.1',
    port,
    user: userInfo().username,
    key: user.key,
    hostKeys: `[127.0.0.1]:${port} ${host.line}`,
    async changeHostKey() {
      await stop()
      await makeSshKey(join(folder, 'host'))
      await start()
    },
    stop,
    start,
    async close() {
      await stop()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
