/** Messages of dynamic updates (RFC 2136) for one TXT record, signed with HMAC-SHA256 (TSIG, RFC 8945). Pure. */
import { createHmac, timingSafeEqual } from 'node:crypto'
import type { TxtRecord } from './provider.ts'

export interface TsigKey {
  name: string
  /** The raw bytes, not base64. */
  secret: Buffer
}

interface Update extends TxtRecord {
  kind: 'add' | 'remove'
  zone: string
}

const types = { soa: 6, txt: 16, tsig: 250 }
const classes = { internet: 1, none: 254, any: 255 }
const ttlSeconds = 60
const fudgeSeconds = 300
const algorithm = 'hmac-sha256'

const u16 = (...values: number[]): Buffer => {
  const bytes = Buffer.alloc(values.length * 2)
  for (const [index, value] of values.entries()) bytes.writeUInt16BE(value, index * 2)
  return bytes
}

const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

/** A name in wire format, in lower case as signatures require. */
const nameBytes = (name: string): Buffer => {
  const labels = name
    .toLowerCase()
    .split('.')
    .filter((label) => label !== '')
  const parts = labels.flatMap((label) => [Buffer.from([label.length]), Buffer.from(label, 'latin1')])
  return Buffer.concat([...parts, Buffer.from([0])])
}

const withLength = (bytes: Buffer): Buffer => Buffer.concat([u16(bytes.length), bytes])

const recordBytes = ({ kind, name, value }: Update): Buffer => {
  const isAdd = kind === 'add'
  const head = u16(types.txt, isAdd ? classes.internet : classes.none)
  const text = Buffer.from(value, 'latin1')
  const data = withLength(Buffer.concat([Buffer.from([text.length]), text]))
  return Buffer.concat([nameBytes(name), head, u32(isAdd ? ttlSeconds : 0), data])
}

const signedTime = (seconds: number): Buffer => {
  const bytes = Buffer.alloc(6)
  bytes.writeUIntBE(seconds, 0, 6)
  return bytes
}

/** The fields of a TSIG record that are signed in addition to the message. */
const signedFields = (key: TsigKey, time: Buffer, fudge: number, error = 0, other: Buffer = Buffer.alloc(0)): Buffer =>
  Buffer.concat([
    ...[nameBytes(key.name), u16(classes.any), u32(0), nameBytes(algorithm)],
    ...[time, u16(fudge, error), withLength(other)],
  ])

const opcodeUpdate = 5 << 11

/** `id`: 16 bits. The signature is needed to check the answer. */
export const updateMessage = (
  update: Update,
  key: TsigKey,
  { id, now }: { id: number; now: Date },
): { message: Buffer; signature: Buffer } => {
  const counts = (additional: number) => u16(id, opcodeUpdate, 1, 0, 1, additional)
  const body = Buffer.concat([nameBytes(update.zone), u16(types.soa, classes.internet), recordBytes(update)])
  const time = signedTime(Math.floor(now.getTime() / 1000))
  const signature = createHmac('sha256', key.secret)
    .update(Buffer.concat([counts(0), body, signedFields(key, time, fudgeSeconds)]))
    .digest()
  const data = [nameBytes(algorithm), time, u16(fudgeSeconds), withLength(signature), u16(id, 0, 0)]
  const tsig = [nameBytes(key.name), u16(types.tsig, classes.any), u32(0), withLength(Buffer.concat(data))]
  return { message: Buffer.concat([counts(1), body, ...tsig]), signature }
}

/** The end of the name that begins here. Throws a `RangeError` if there is none. */
const nameEnd = (message: Buffer, from: number): number => {
  for (let at = from; ; ) {
    const length = message.readUInt8(at)
    if (length >= 0xc0) return at + 2
    if (length === 0) return at + 1
    at += length + 1
  }
}

interface Tsig {
  /** Offset of its first byte. */
  at: number
  time: Buffer
  fudge: number
  signature: Buffer
  originalId: number
  error: number
  other: Buffer
}

const readTsig = (message: Buffer, at: number): Tsig | null => {
  const fields = nameEnd(message, at)
  if (message.readUInt16BE(fields) !== types.tsig) return null
  const start = nameEnd(message, fields + 10)
  const size = message.readUInt16BE(start + 8)
  const after = start + 10 + size
  const otherSize = message.readUInt16BE(after + 4)
  return {
    at,
    time: message.subarray(start, start + 6),
    fudge: message.readUInt16BE(start + 6),
    signature: message.subarray(start + 10, after),
    originalId: message.readUInt16BE(after),
    error: message.readUInt16BE(after + 2),
    other: message.subarray(after + 6, after + 6 + otherSize),
  }
}

/** The TSIG record is the last one. */
const findTsig = (message: Buffer): Tsig | null => {
  const [questions, ...others] = [4, 6, 8, 10].map((at) => message.readUInt16BE(at)) as [number, ...number[]]
  let at = 12
  for (let index = 0; index < questions; index += 1) at = nameEnd(message, at) + 4
  const records = others.reduce((sum, count) => sum + count, 0)
  for (let index = 1; index < records; index += 1) {
    const fields = nameEnd(message, at)
    at = fields + 10 + message.readUInt16BE(fields + 8)
  }
  return records === 0 ? null : readTsig(message, at)
}

const isSigned = (message: Buffer, tsig: Tsig, key: TsigKey, asked: Buffer): boolean => {
  const head = Buffer.from(message.subarray(0, 12))
  head.writeUInt16BE(tsig.originalId, 0)
  head.writeUInt16BE(head.readUInt16BE(10) - 1, 10)
  const fields = signedFields(key, tsig.time, tsig.fudge, tsig.error, tsig.other)
  const expected = createHmac('sha256', key.secret)
    .update(Buffer.concat([withLength(asked), head, message.subarray(12, tsig.at), fields]))
    .digest()
  return tsig.signature.length === expected.length && timingSafeEqual(Buffer.from(tsig.signature), expected)
}

interface UpdateAnswer {
  /** The response code: 0 is success. */
  code: number
  /** The error in our signature: 0 is none. */
  tsigError: number
  isSigned: boolean
}

/** Null if it does not answer the message of this id. `asked`: the signature of that message. */
export const readUpdateAnswer = (message: Buffer, id: number, key: TsigKey, asked: Buffer): UpdateAnswer | null => {
  try {
    const flags = message.readUInt16BE(2)
    if (message.readUInt16BE(0) !== id || (flags & 0x8000) === 0) return null
    const tsig = findTsig(message)
    const code = flags & 15
    if (tsig === null) return { code, tsigError: 0, isSigned: false }
    return { code, tsigError: tsig.error, isSigned: isSigned(message, tsig, key, asked) }
  } catch {
    return null
  }
}
