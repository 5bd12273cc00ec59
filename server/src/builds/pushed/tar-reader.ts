/**
 * Reads an untrusted tar archive, in one pass and with little memory. Promises that every path and link it yields
 * stays inside the folder, is not git's own, and that everything is counted before it is kept. Pure.
 */
export interface ArchiveLimits {
  /** Compressed. */
  maxBytes: number
  /** For its whole content, headers included. */
  inflatedBytes: number
  entries: number
  /** In UTF-8, of one path and of all together. */
  pathBytes: number
  allPathBytes: number
}

/** How many times its size a larger archive may inflate to. */
export const mostRatio = 100
export const smallBytes = 100 * 2 ** 20

export interface ArchiveEntry {
  path: string
  mode: '100644' | '100755' | '120000'
  size: number
  /** To be read to its end before the next entry. */
  content: AsyncIterable<Buffer>
}

/** One sentence for the sender of the archive. */
export class ArchiveRefused extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'ArchiveRefused'
  }
}

const blockBytes = 512
const maxHeaderText = 65_536
const maxDepth = 100
const maxInFolder = 10_000

const damaged = (): ArchiveRefused => new ArchiveRefused('The archive is damaged or is not a tar archive.')

const createTaker = (source: AsyncIterable<Buffer>) => {
  const chunks = source[Symbol.asyncIterator]()
  let held: Buffer = Buffer.alloc(0)
  const grow = async (): Promise<boolean> => {
    const { done, value } = await chunks.next()
    if (done === true) return false
    held = held.length === 0 ? value : Buffer.concat([held, value])
    return true
  }
  async function* stream(count: number): AsyncGenerator<Buffer> {
    for (let wanted = count; wanted > 0; ) {
      if (held.length === 0 && !(await grow())) throw damaged()
      const piece = held.subarray(0, wanted)
      held = held.subarray(piece.length)
      wanted -= piece.length
      yield piece
    }
  }
  const take = async (count: number): Promise<Buffer> => {
    const pieces: Buffer[] = []
    for await (const piece of stream(count)) pieces.push(piece)
    return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)
  }
  const isOver = async (): Promise<boolean> => held.length === 0 && !(await grow())
  const rest = async (): Promise<void> => {
    for (held = Buffer.alloc(0); await grow(); held = Buffer.alloc(0));
  }
  return { stream, take, isOver, rest }
}

type Taker = ReturnType<typeof createTaker>

const octal = (bytes: Buffer): number => {
  const text = bytes
    .toString('latin1')
    .replace(/[\0 ]+$/, '')
    .trim()
  if (text === '') return 0
  // The binary form is for sizes that are refused anyway.
  if (!/^[0-7]{1,11}$/.test(text)) throw damaged()
  return Number.parseInt(text, 8)
}

const utf8 = new TextDecoder('utf-8', { fatal: true })

const decode = (bytes: Buffer): string => {
  try {
    return utf8.decode(bytes)
  } catch {
    throw new ArchiveRefused('A file name in the archive is not UTF-8: rename the file.')
  }
}

const cut = (bytes: Buffer): Buffer => {
  const end = bytes.indexOf(0)
  return end === -1 ? bytes : bytes.subarray(0, end)
}

interface Header {
  type: string
  name: Buffer
  link: Buffer
  mode: number
  size: number
}

const isZero = (block: Buffer): boolean => block.every((byte) => byte === 0)

const readHeader = (block: Buffer): Header => {
  let sum = 0
  for (let at = 0; at < blockBytes; at += 1) sum += at >= 148 && at < 156 ? 32 : block[at]!
  if (octal(block.subarray(148, 156)) !== sum) throw damaged()
  const prefix = block.toString('latin1', 257, 262) === 'ustar' ? cut(block.subarray(345, 500)) : Buffer.alloc(0)
  const isGnu = block.toString('latin1', 257, 265) === 'ustar  \0'
  const name = cut(block.subarray(0, 100))
  return {
    type: block.toString('latin1', 156, 157),
    name: prefix.length === 0 || isGnu ? name : Buffer.concat([prefix, Buffer.from('/'), name]),
    link: cut(block.subarray(157, 257)),
    mode: octal(block.subarray(100, 108)),
    size: octal(block.subarray(124, 136)),
  }
}

interface Said {
  path?: Buffer
  link?: Buffer
  size?: number
}

/** `<length> <key>=<value>\n`, repeated; each byte is read once. */
const readPax = (bytes: Buffer, said: Said): void => {
  for (let at = 0; at < bytes.length; ) {
    const space = bytes.indexOf(32, at)
    const digits = space === -1 || space - at > 6 ? '' : bytes.toString('latin1', at, space)
    const length = /^[1-9]\d*$/.test(digits) ? Number(digits) : 0
    const end = at + length
    if (length < digits.length + 4 || end > bytes.length || bytes[end - 1] !== 10) throw damaged()
    const record = bytes.subarray(space + 1, end - 1)
    const equals = record.indexOf(61)
    if (equals === -1) throw damaged()
    const key = record.toString('latin1', 0, equals)
    const value = record.subarray(equals + 1)
    if (key.startsWith('GNU.sparse'))
      throw new ArchiveRefused('The archive has sparse files: pack it without --sparse.')
    if (key === 'path') said.path = value
    else if (key === 'linkpath') said.link = value
    else if (key === 'size') {
      if (!/^\d{1,15}$/.test(value.toString('latin1'))) throw damaged()
      said.size = Number(value.toString('latin1'))
    }
    at = end
  }
}

// Names that file systems treat as `.git`: some ignore these characters, trailing dots and blanks, or have short
// names.
const ignored = /[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]/g

const isGits = (part: string): boolean =>
  /^(?:\.git|git~\d+)$/i.test(
    part
      .replace(ignored, '')
      .replace(/[. ]+$/, '')
      .replace(/:.*$/s, ''),
  )

const refusedPath = (words: string, path: string): ArchiveRefused =>
  new ArchiveRefused(`${words}: ${path.replace(/\p{Cc}/gu, '?').slice(0, 100)}`)

/** The path without `.` and outer slashes; '' for the top itself. */
const insidePath = (bytes: Buffer, limits: Pick<ArchiveLimits, 'pathBytes'>): string => {
  if (bytes.length > limits.pathBytes)
    throw new ArchiveRefused(`A path in the archive is longer than ${limits.pathBytes} bytes.`)
  const path = decode(bytes)
  if (/\p{Cc}/u.test(path)) throw refusedPath('A path in the archive has control characters', path)
  if (path.startsWith('/')) throw refusedPath('A path in the archive is absolute', path)
  const parts = path.split('/').filter((part) => part !== '' && part !== '.')
  if (parts.length > maxDepth) throw refusedPath(`A path in the archive has more than ${maxDepth} folders`, path)
  if (parts.includes('..')) throw refusedPath('A path in the archive leaves its folder', path)
  if (parts.some(isGits))
    throw refusedPath('The archive contains a .git folder: leave it out (tar --exclude=.git)', path)
  return parts.join('/')
}

/** Throws for a link that leads out of the folder, by itself or with the help of other links. */
const checkLink = (path: string, bytes: Buffer, limits: Pick<ArchiveLimits, 'pathBytes'>): void => {
  const outside = () => refusedPath('A link in the archive leads out of its folder', path)
  if (bytes.length === 0 || bytes.length > limits.pathBytes) throw outside()
  const target = decode(bytes)
  if (target.startsWith('/') || /\p{Cc}/u.test(target)) throw outside()
  const parts = target.split('/').filter((part) => part !== '' && part !== '.')
  const ups = parts.findIndex((part) => part !== '..')
  const climbed = ups === -1 ? parts.length : ups
  // A part after the name of another link is relative to that link's target.
  if (parts.slice(climbed).includes('..') || climbed > path.split('/').length - 1) throw outside()
  if (parts.some(isGits) || /^\.git/i.test(path.split('/').at(-1)!)) throw outside()
}

const readText = async (taker: Taker, size: number): Promise<Buffer> => {
  if (size > maxHeaderText) throw new ArchiveRefused('A header in the archive is larger than 64 KB.')
  const bytes = await taker.take(size)
  await taker.take(padding(size))
  return bytes
}

const padding = (size: number): number => (blockBytes - (size % blockBytes)) % blockBytes

async function* nothing(): AsyncGenerator<Buffer> {}

const kindRefused = (type: string, path: string): ArchiveRefused =>
  type === '1'
    ? refusedPath('The archive has hard links: pack it with tar --hard-dereference', path)
    : refusedPath('The archive has something that is neither a file, a folder nor a symbolic link', path)

/** Counts the entries of each folder: git is slow with very many in one. */
const createFolders = () => {
  const counts = new Map<string, number>()
  return (path: string): void => {
    for (let inner = path; ; ) {
      const parent = inner.slice(0, Math.max(inner.lastIndexOf('/'), 0))
      const before = counts.get(parent)
      counts.set(parent, (before ?? 0) + 1)
      if ((before ?? 0) >= maxInFolder)
        throw refusedPath(`The archive has more than ${maxInFolder} files in one folder`, parent)
      if (before !== undefined || parent === '') return
      inner = parent
    }
  }
}

/** The files and links of an archive, in its order; folders are made for the entries in them. */
export async function* readTar(source: AsyncIterable<Buffer>, limits: ArchiveLimits): AsyncGenerator<ArchiveEntry> {
  const taker = createTaker(source)
  const count = createFolders()
  let said: Said = {}
  let entries = 0
  let paths = 0
  let texts = 0
  while (!(await taker.isOver())) {
    const block = await taker.take(blockBytes)
    if (isZero(block)) return taker.rest()
    const header = readHeader(block)
    entries += 1
    if (entries > limits.entries) throw new ArchiveRefused(`The archive has more than ${limits.entries} entries.`)
    const { type } = header
    if ('xgLK'.includes(type)) texts += header.size
    if (texts > 2 * limits.allPathBytes) throw new ArchiveRefused('The headers in the archive are too large in total.')
    if (type === 'x') readPax(await readText(taker, header.size), said)
    else if (type === 'g') await readText(taker, header.size)
    else if (type === 'L') said.path = cut(await readText(taker, header.size))
    else if (type === 'K') said.link = cut(await readText(taker, header.size))
    else {
      const { path: named = header.name, link = header.link, size = header.size } = said
      said = {}
      paths += named.length + link.length
      if (paths > limits.allPathBytes) throw new ArchiveRefused('The paths in the archive are too long in total.')
      const path = insidePath(named, limits)
      count(path)
      const isFile = type === '0' || type === '\0' || type === '7'
      if (!isFile && type !== '2' && type !== '5') throw kindRefused(type, path)
      if (type === '2') {
        checkLink(path, link, limits)
        if (path !== '')
          yield {
            path,
            mode: '120000',
            size: link.length,
            content: (async function* () {
              yield link
            })(),
          }
      }
      if (isFile && path !== '' && !named.toString('latin1').endsWith('/'))
        yield { path, mode: (header.mode & 0o100) === 0 ? '100644' : '100755', size, content: taker.stream(size) }
      else for await (const _ of size === 0 ? nothing() : taker.stream(size));
      await taker.take(padding(size))
    }
  }
}
