/** The small text file that replaces a file stored with Git LFS in a repository. Pure. */

/** https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md */
export interface LfsPointer {
  /** SHA-256 of the content, 64 hexadecimal digits. */
  oid: string
  size: number
  /** Extensions have changed the content: only their programs can restore it. */
  hasExtensions: boolean
}

/** No pointer is shorter or longer. */
export const pointerBytes = { least: 100, most: 1024 } as const

const version = /^version (?:https:\/\/git-lfs\.github\.com\/spec\/v1|https:\/\/hawser\.github\.com\/spec\/v1)$/

/** Null if it is not a pointer. */
export const parsePointer = (content: Buffer): LfsPointer | null => {
  if (content.length < pointerBytes.least || content.length > pointerBytes.most) return null
  const [first = '', ...lines] = content.toString('latin1').trimEnd().split('\n')
  if (!version.test(first)) return null
  const fields = new Map(
    lines.map((line) => {
      const space = line.indexOf(' ')
      return [line.slice(0, Math.max(space, 0)), line.slice(space + 1)]
    }),
  )
  const oid = /^sha256:([0-9a-f]{64})$/.exec(fields.get('oid') ?? '')?.[1]
  const size = /^\d{1,15}$/.test(fields.get('size') ?? '') ? Number(fields.get('size')) : null
  if (oid === undefined || size === null) return null
  return { oid, size, hasExtensions: [...fields.keys()].some((key) => key.startsWith('ext-')) }
}
