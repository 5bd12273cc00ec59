/**
 * Lists the files of a context before any of them is read. Promises the names of all files that belong in it, or an
 * error for the limit that it exceeds; its own memory is bounded by those limits.
 */
import { createHash } from 'node:crypto'
import type { Git } from '../git/process.ts'
import type { SourceTree } from '../git/source-tree.ts'
import {
  contextTooLarge,
  contextTooMany,
  folderTooLarge,
  ignoredTimes,
  maxPathBytes,
  type PreparationLimits,
  refusePreparation,
} from '../preparation-limits.ts'
import { parseIgnoreFile } from './ignore-file.ts'

const maxNameBytes = 64 * 2 ** 20

const show = (path: string): string => JSON.stringify(path.length > 80 ? `${path.slice(0, 77)}...` : path)

const pathTooLong = (path: string) =>
  refusePreparation(`The path ${show(path)} has more than ${maxPathBytes} bytes, which is too long for any system.`)

export interface Listed {
  mode: string
  id: string
  /** 0 for a folder. */
  size: number
  path: string
  /** The path as it is in the repository, which may not be UTF-8. */
  rawPath: Buffer
}

/** One record of `ls-tree -l`: `<mode> <type> <id> <size or ->\t<path>`. */
const parseRecord = (bytes: Buffer): Listed => {
  const tab = bytes.indexOf(9)
  const [mode = '', , id = '', size = ''] = bytes.toString('latin1', 0, tab).split(/ +/)
  const rawPath = bytes.subarray(tab + 1)
  return { mode, id, size: size === '-' ? 0 : Number(size), path: rawPath.toString('utf8'), rawPath }
}

const longestRecord = maxPathBytes + 150

/** Everything in a tree, folders too. Rejects with `build_refused` for a path that is too long. */
export async function* listTree(
  git: Git,
  { mirror, treeId }: Pick<SourceTree, 'mirror' | 'treeId'>,
  timeoutMs: number,
): AsyncGenerator<Listed> {
  const args = ['--git-dir', mirror, 'ls-tree', '-r', '-t', '-l', '-z', '--full-tree', '--end-of-options', treeId]
  const stream = git.open(args, { timeoutMs })
  let open: Buffer = Buffer.alloc(0)
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      const bytes = open.length === 0 ? chunk : Buffer.concat([open, chunk])
      let start = 0
      for (let end = bytes.indexOf(0); end !== -1; end = bytes.indexOf(0, start)) {
        const record = bytes.subarray(start, end)
        if (record.length > longestRecord) throw pathTooLong(parseRecord(record).path)
        yield parseRecord(record)
        start = end + 1
      }
      open = bytes.subarray(start)
      if (open.length > longestRecord) throw pathTooLong(parseRecord(open).path)
    }
  } finally {
    stream.destroy()
  }
}

const isLink = ({ mode }: Listed): boolean => mode === '120000'

/** Names that git itself refuses to check out: a tree can contain any name if it was crafted by hand. */
const checkListed = (listed: Listed): void => {
  const { path, size } = listed
  if (Buffer.byteLength(path) > maxPathBytes) throw pathTooLong(path)
  if (/(^|\/)(?:\.{0,2}|\.git)(\/|$)/i.test(path))
    throw refusePreparation(`The repository has a file ${show(path)}, a name that git does not allow.`)
  if (isLink(listed) && size > maxPathBytes)
    throw refusePreparation(`The link ${show(path)} points to a path of more than ${maxPathBytes} bytes.`)
}

const createCount = (limits: PreparationLimits) => {
  const all = { bytes: 0, entries: 0 }
  const kept = { bytes: 0, entries: 0 }
  return {
    see({ size }: Listed): void {
      all.bytes += size
      all.entries += 1
      if (all.bytes > ignoredTimes * limits.contextBytes || all.entries > ignoredTimes * limits.contextEntries)
        throw folderTooLarge(limits)
    },
    keep({ size }: { size: number }): void {
      kept.bytes += size
      kept.entries += 1
      if (kept.entries > limits.contextEntries) throw contextTooMany(limits)
      if (kept.bytes > limits.contextBytes) throw contextTooLarge(limits)
    },
  }
}

/** Counts the files of a context, and throws the sentence of a limit that they exceed. */
export const createKeptCount = (limits: PreparationLimits): ((entry: { size: number }) => void) =>
  createCount(limits).keep

/** Long names are stored as their hash. */
const keyOf = (path: string): string =>
  path.length <= 128 ? path : `\0${createHash('sha256').update(path).digest('base64')}`

export interface Names {
  has(path: string): boolean
}

/** The names of the files in the context: everything except files that .dockerignore excludes, plus `always`. */
export const scanContext = async (
  git: Git,
  tree: SourceTree,
  always: ReadonlySet<string>,
  limits: PreparationLimits,
): Promise<Names> => {
  const isIgnored = parseIgnoreFile(tree.ignoreFile)
  const count = createCount(limits)
  const kept = new Set<string>()
  let nameBytes = 0
  for await (const listed of listTree(git, tree, limits.readMs)) {
    const { path } = listed
    checkListed(listed)
    count.see(listed)
    if (isIgnored(path) && !always.has(path)) continue
    count.keep(listed)
    const key = keyOf(path)
    if (kept.has(key)) throw refusePreparation(`The repository has two files with the name ${show(path)}.`)
    kept.add(key)
    nameBytes += key.length
    if (nameBytes > maxNameBytes) throw contextTooMany(limits)
  }
  return { has: (path) => kept.has(keyOf(path)) }
}
