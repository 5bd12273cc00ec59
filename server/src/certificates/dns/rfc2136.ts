/** A name server that takes dynamic updates (RFC 2136), over TCP. */
import { randomInt } from 'node:crypto'
import { lookup, Resolver } from 'node:dns/promises'
import { connect } from 'node:net'
import type { Secret } from '../../lib/secret.ts'
import type { Clock } from '../../lib/time/clock.ts'
import { DnsProblem, type DnsProvider, type TxtRecord, zoneNames } from './provider.ts'
import { readUpdateAnswer, type TsigKey, updateMessage } from './update-message.ts'

export interface UpdateServer {
  host: string
  port: number
  keyName: string
  /** In base64. */
  keySecret: Secret
}

const exchangeMs = 10_000
const mostBytes = 65_535

const silent = (): DnsProblem => new DnsProblem('silent')

/** Sends one message and returns the answer; rejects with a `DnsProblem` if none arrives. */
const exchange = (host: string, port: number, message: Buffer, signal: AbortSignal): Promise<Buffer> =>
  new Promise((resolve, reject) => {
    const socket = connect({ host, port, signal: AbortSignal.any([signal, AbortSignal.timeout(exchangeMs)]) })
    let seen = Buffer.alloc(0)
    const end = (settle: () => void): void => {
      socket.destroy()
      settle()
    }
    socket.on('error', () => end(() => reject(signal.aborted ? signal.reason : silent())))
    socket.on('close', () => reject(silent()))
    socket.on('data', (bytes) => {
      seen = Buffer.concat([seen, bytes])
      const size = seen.length < 2 ? mostBytes : seen.readUInt16BE(0)
      if (seen.length >= size + 2) end(() => resolve(seen.subarray(2, size + 2)))
    })
    const length = Buffer.alloc(2)
    length.writeUInt16BE(message.length)
    socket.write(Buffer.concat([length, message]))
  })

const addressOf = async (host: string): Promise<string> => {
  const { address } = await lookup(host).catch(() => {
    throw new DnsProblem('silent', { cause: 'its server has no address' })
  })
  return address
}

const isAbsent = (error: unknown): boolean =>
  ['ENODATA', 'ENOTFOUND', 'EREFUSED', 'ENOTIMP'].includes((error as NodeJS.ErrnoException).code ?? '')

/** The zone of a name, as the server itself says. */
const findZone = async (address: string, port: number, name: string, signal: AbortSignal): Promise<string> => {
  const resolver = new Resolver({ timeout: 3000, tries: 2 })
  resolver.setServers([address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`])
  for (const zone of zoneNames(name)) {
    signal.throwIfAborted()
    const found = await resolver.resolveSoa(zone).catch((error: unknown) => {
      if (isAbsent(error)) return null
      throw silent()
    })
    if (found !== null) return zone
  }
  throw new DnsProblem('zone')
}

const refused = 5
const notAuthoritative = 9
const notInZone = 10
const badTime = 18

const judge = (code: number, tsigError: number): DnsProblem => {
  if (tsigError === badTime) return new DnsProblem('denied', { cause: 'the clocks of the two servers differ' })
  if (tsigError !== 0 || code === refused) return new DnsProblem('denied')
  if (code === notAuthoritative || code === notInZone) return new DnsProblem('zone')
  return code === 2 ? silent() : new DnsProblem('refused', { cause: `code ${code}` })
}

export const createUpdateProvider = (server: UpdateServer, clock: Pick<Clock, 'now'>): DnsProvider => {
  const keyOf = (): TsigKey => ({ name: server.keyName, secret: Buffer.from(server.keySecret.reveal(), 'base64') })
  const change = async (kind: 'add' | 'remove', record: TxtRecord, signal: AbortSignal): Promise<void> => {
    const { port } = server
    const address = await addressOf(server.host)
    const zone = await findZone(address, port, record.name, signal)
    const [key, id] = [keyOf(), randomInt(65_536)]
    const { message, signature } = updateMessage({ ...record, kind, zone }, key, { id, now: clock.now() })
    const answer = readUpdateAnswer(await exchange(address, port, message, signal), id, key, signature)
    if (answer === null) throw silent()
    if (answer.code !== 0) throw judge(answer.code, answer.tsigError)
    if (!answer.isSigned) throw new DnsProblem('denied', { cause: 'its answer is not signed with our key' })
  }
  return {
    async check(name, signal) {
      await findZone(await addressOf(server.host), server.port, name, signal)
    },
    set: (record, signal) => change('add', record, signal),
    remove: (record, signal) => change('remove', record, signal),
  }
}
