/**
 * Streams to a unix socket of another machine, all over one SSH connection, which is opened when a stream is asked for
 * and again after it broke. The library runs in this process: no key is written to disk, no program is started, and
 * what is connected to is the address that was checked.
 */
import { createPrivateKey } from 'node:crypto'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { Duplex } from 'node:stream'
import type { Channel, Client } from 'ssh2'
import { refuseUnusualKey } from '../usual-key.ts'
import type { SshConnection } from './engine-connection.ts'

interface SshTunnel {
  /** Rejects with `SshError`, or with the error of the network. */
  open(): Promise<Duplex>
  close(): void
}

type SshProblem = 'host-key' | 'login' | 'key' | 'socket' | 'protocol'

export class SshError extends Error {
  readonly problem: SshProblem

  constructor(problem: SshProblem, message: string, cause?: unknown) {
    super(message, { cause })
    this.name = 'SshError'
    this.problem = problem
  }
}

interface HostKey {
  type: string
  blob: Buffer
}

const keyPattern = /(?:^|\s)(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) ([A-Za-z0-9+/]+={0,2})(?:\s|$)/

/** The keys in the lines of a known_hosts file or of ssh-keyscan; host names are ignored. */
export const parseHostKeys = (text: string): HostKey[] =>
  text
    .split('\n')
    .filter((line) => !/^\s*[#@]/.test(line))
    .flatMap((line) => {
      const found = keyPattern.exec(line)
      return found === null ? [] : [{ type: found[1]!, blob: Buffer.from(found[2]!, 'base64') }]
    })

const algorithmsOf = ({ type }: HostKey): string[] => (type === 'ssh-rsa' ? ['rsa-sha2-512', 'rsa-sha2-256'] : [type])

const connectMs = 5000
const keepAlive = { keepaliveInterval: 10_000, keepaliveCountMax: 3 }
/**
 * A machine that refused the login or presented another key is not contacted again at once: it may ban repeated
 * attempts.
 */
const refusedPauseMs = 30_000

/** Notes before a key are common, and the library reads none. */
const keyIn = (text: string): string => text.slice(Math.max(0, text.indexOf('-----BEGIN')))

const library = () => import('ssh2').then((module) => module.default)

/** Why the text is not a private key that can be used; null when it is one. */
export const refuseKey = async (text: string): Promise<string | null> => {
  const { utils } = await library()
  const found = [utils.parseKey(keyIn(text))].flat()[0]!
  if (found instanceof Error)
    return /passphrase|encrypted/i.test(found.message) ? 'is encrypted' : 'is not a private SSH key'
  if (!found.isPrivateKey()) return 'is a public key'
  const unusual = refuseUnusualKey(createPrivateKey(found.getPrivatePEM()))
  return unusual === null ? null : `is not used, because ${unusual}`
}

const openSocket = async ({ host, port, pin }: SshConnection): Promise<Socket> => {
  const address = pin === undefined ? host : (await pin(host, port)).address
  const socket = connect({ host: address.replace(/^\[(.*)\]$/, '$1'), port, noDelay: true })
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(connectMs) })
    return socket
  } catch (error) {
    socket.destroy()
    throw error
  }
}

const explain = (error: Error & { level?: string }, foreignKey: boolean): Error => {
  if (foreignKey) return new SshError('host-key', 'the host key of the machine is not one of those given', error)
  if (/no matching host key/i.test(error.message))
    return new SshError('host-key', 'the machine has no host key of the given types', error)
  if (error.level === 'client-authentication') return new SshError('login', 'the login was refused', error)
  if (/Cannot parse privateKey/.test(error.message)) return new SshError('key', 'the private key cannot be read', error)
  return new SshError('protocol', 'the SSH connection failed', error)
}

const logIn = async (connection: SshConnection): Promise<Client> => {
  const known = parseHostKeys(connection.hostKeys)
  const { Client } = await library()
  const socket = await openSocket(connection)
  const client = new Client()
  let foreignKey = false
  try {
    const ready = Promise.withResolvers<void>()
    client.once('ready', () => ready.resolve())
    // More than one error may be emitted, the later ones when nothing waits any longer.
    client.on('error', ready.reject)
    client.once('close', () => ready.reject(new Error('the machine closed the connection')))
    client.connect({
      ...keepAlive,
      sock: socket,
      username: connection.user,
      privateKey: keyIn(connection.key.reveal()),
      authHandler: ['publickey'],
      readyTimeout: connectMs,
      algorithms: { serverHostKey: known.flatMap(algorithmsOf) },
      hostVerifier: (key) => {
        foreignKey = !known.some(({ blob }) => blob.equals(key))
        return !foreignKey
      },
    })
    await ready.promise
    return client
  } catch (error) {
    client.destroy()
    socket.destroy()
    throw explain(error as Error, foreignKey)
  }
}

/** The remote side gives a reason when it refuses. */
const explainOpening = (error: Error & { reason?: unknown }): SshError =>
  typeof error.reason !== 'number'
    ? new SshError('protocol', 'the SSH connection ended', error)
    : new SshError('socket', 'the socket could not be opened there', error)

/** A channel as streams of Node are: the library's own never ends a write after the connection broke. */
const streamOf = (channel: Channel): Duplex => {
  const stream = new Duplex({
    allowHalfOpen: false,
    read: () => channel.resume(),
    write: (chunk, _encoding, done) => void channel.write(chunk, done),
    final: (done) => {
      channel.end()
      done()
    },
    destroy: (error, done) => {
      channel.close()
      done(error)
    },
  })
  let isEnded = false
  channel.on('data', (chunk: Buffer) => {
    if (!stream.push(chunk)) channel.pause()
  })
  channel.once('end', () => {
    isEnded = true
    stream.push(null)
  })
  channel.once('close', () => {
    if (!isEnded) stream.destroy(new SshError('protocol', 'the SSH connection ended'))
  })
  channel.on('error', (error: Error) => stream.destroy(error))
  return stream
}

export const createSshTunnel = (connection: SshConnection): SshTunnel => {
  let client: Promise<Client> | undefined
  let isClosed = false

  const forget = (one: Promise<Client>): void => {
    if (client === one) client = undefined
  }
  const begin = (): Promise<Client> => {
    const one = logIn(connection)
    client = one
    one.then(
      (ready) => {
        if (isClosed) ready.end()
        else ready.once('close', () => forget(one))
      },
      (error: unknown) => {
        const isRefused = error instanceof SshError && error.problem !== 'protocol'
        setTimeout(() => forget(one), isRefused ? refusedPauseMs : 0).unref()
      },
    )
    return one
  }

  return {
    async open() {
      if (isClosed) throw new SshError('protocol', 'the SSH connection was closed')
      const ready = await (client ?? begin())
      return new Promise((resolve, reject) => {
        // It is called also when the connection ends meanwhile.
        ready.openssh_forwardOutStreamLocal(connection.socketPath, (error, channel) => {
          if (error) reject(explainOpening(error))
          else resolve(streamOf(channel))
        })
      })
    },
    close() {
      isClosed = true
      client?.then(
        (ready) => ready.end(),
        () => {},
      )
    },
  }
}
