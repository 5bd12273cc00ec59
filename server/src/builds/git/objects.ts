/**
 * Reads objects of a mirror with `git cat-file`. Promises that no content is read before its size is known and allowed,
 * and that only ids and paths below an id are ever requested. Responses are delimited by their length, never by their
 * content.
 */
import type { Readable } from 'node:stream'
import { isCommitId } from './names.ts'
import type { Git } from './process.ts'

/** `outside`: a link that leads out of the repository, nowhere or in a loop. */
export type Found = { kind: 'missing' | 'outside' } | { kind: string; id: string; size: number }

export interface Objects {
  /**
   * All at once; a name is an id, `<id>^{tree}` or `<id>:<path>`. Links in a path are followed inside the repository.
   */
  look(names: readonly string[]): Promise<Found[]>
  /** The object with an id that `look` returned, along with its size. */
  read(found: { id: string; size: number }): Promise<Buffer>
  close(): void
}

const createTaker = (stream: Readable) => {
  let held: Buffer = Buffer.alloc(0)
  const chunks = stream[Symbol.asyncIterator]() as AsyncIterator<Buffer>
  const grow = async (): Promise<void> => {
    const { done, value } = await chunks.next()
    if (done === true) throw new Error('git cat-file ended early')
    held = held.length === 0 ? value : Buffer.concat([held, value])
  }
  const line = async (): Promise<string> => {
    for (;;) {
      const end = held.indexOf(10)
      if (end !== -1) {
        const text = held.toString('utf8', 0, end)
        held = held.subarray(end + 1)
        return text
      }
      if (held.length > 65_536) throw new Error('git cat-file returned an unterminated line')
      await grow()
    }
  }
  const bytes = async (count: number): Promise<Buffer> => {
    const pieces: Buffer[] = []
    for (let wanted = count; wanted > 0; ) {
      if (held.length === 0) await grow()
      const piece = held.subarray(0, wanted)
      held = held.subarray(piece.length)
      pieces.push(piece)
      wanted -= piece.length
    }
    return Buffer.concat(pieces)
  }
  return { line, bytes }
}

const checkName = (name: string): string => {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: git reads one name a line
  const match = /^([0-9a-f]+)(?:\^\{tree\}|:[^\u0000-\u001f]*)?$/.exec(name)
  if (match === null || !isCommitId(match[1]!)) throw new Error('not a valid object id for git')
  return name
}

const openObjects = (git: Git, mirror: string, timeoutMs: number): Objects => {
  const { input, output } = git.talk(['--git-dir', mirror, 'cat-file', '--batch-command', '--follow-symlinks'], {
    timeoutMs,
  })
  // A pending request gets the error; between requests it is ignored.
  output.on('error', () => {})
  const taker = createTaker(output)

  const readFound = async (): Promise<Found> => {
    const line = await taker.line()
    const object = /^([0-9a-f]{40,64}) (commit|tree|blob|tag) (\d+)$/.exec(line)
    if (object !== null) return { kind: object[2]!, id: object[1]!, size: Number(object[3]) }
    const link = /^(symlink|dangling|loop|notdir) (\d+)$/.exec(line)
    if (link === null) return { kind: 'missing' }
    await taker.bytes(Number(link[2]) + 1)
    return { kind: link[1] === 'notdir' ? 'missing' : 'outside' }
  }

  return {
    async look(names) {
      input.write(names.map((name) => `info ${checkName(name)}\n`).join(''))
      const found: Found[] = []
      for (const _ of names) found.push(await readFound())
      return found
    },
    async read({ id, size }) {
      input.write(`contents ${checkName(id)}\n`)
      const answer = await readFound()
      if (!('size' in answer) || answer.size !== size || answer.id !== id)
        throw new Error('git returned a different object')
      const content = await taker.bytes(size)
      await taker.bytes(1)
      return content
    },
    close() {
      input.end()
      output.destroy()
    },
  }
}

export const withObjects = async <T>(
  git: Git,
  mirror: string,
  timeoutMs: number,
  work: (objects: Objects) => Promise<T>,
): Promise<T> => {
  const objects = openObjects(git, mirror, timeoutMs)
  try {
    return await work(objects)
  } finally {
    objects.close()
  }
}
