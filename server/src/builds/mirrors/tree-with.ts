/** Grafts trees into another one: only the folders on the way are written anew, whatever else the tree contains. */
import { isCommitId } from '../git/names.ts'
import type { Git } from '../git/process.ts'

const timeoutMs = 30_000
const maxListBytes = 2 ** 24

/** Records `<mode> <type> <id>\t<name>`; bytes as latin1, because names may be anything. */
const listFolder = async (git: Git, mirror: string, tree: string): Promise<string[]> => {
  const stream = git.open(['--git-dir', mirror, 'ls-tree', '-z', '--full-tree', '--end-of-options', tree], {
    timeoutMs,
  })
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > maxListBytes) throw new Error('a folder of a repository has too many files')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
    .toString('latin1')
    .split('\0')
    .filter((record) => record !== '')
}

const writeFolder = async (git: Git, mirror: string, records: readonly string[]): Promise<string> => {
  const { input, output } = git.talk(['--git-dir', mirror, 'mktree', '-z'], { timeoutMs })
  input.end(Buffer.from(records.map((record) => `${record}\0`).join(''), 'latin1'))
  const id = Buffer.concat(await output.toArray())
    .toString('latin1')
    .trim()
  if (!isCommitId(id)) throw new Error('git mktree answered no id')
  return id
}

const nameIn = (record: string): string => record.slice(record.indexOf('\t') + 1)

/**
 * The id of `tree` (an id, or `<commit>^{tree}`) with the trees of `added` at their paths, each replacing the entry
 * there. A path whose folders are not all in the tree is left out.
 */
export const treeWith = async (
  git: Git,
  mirror: string,
  tree: string,
  added: ReadonlyMap<string, string>,
): Promise<string> => {
  const inner = new Map<string, Map<string, string>>()
  for (const [path, id] of added) {
    const [first, ...rest] = Buffer.from(path).toString('latin1').split('/') as [string, ...string[]]
    const below = inner.get(first) ?? new Map<string, string>()
    below.set(Buffer.from(rest.join('/'), 'latin1').toString(), id)
    inner.set(first, below)
  }
  const records: string[] = []
  for (const record of await listFolder(git, mirror, tree)) {
    const below = inner.get(nameIn(record))
    records.push(below === undefined ? record : await replaced(git, mirror, record, below))
  }
  return writeFolder(git, mirror, records)
}

const replaced = async (git: Git, mirror: string, record: string, below: ReadonlyMap<string, string>) => {
  const whole = below.get('')
  const [, type, id] = /^\d+ (\w+) ([0-9a-f]+)\t/.exec(record) ?? []
  if (whole !== undefined) return `040000 tree ${whole}\t${nameIn(record)}`
  if (type !== 'tree' || id === undefined || !isCommitId(id)) return record
  return `040000 tree ${await treeWith(git, mirror, id, below)}\t${nameIn(record)}`
}
