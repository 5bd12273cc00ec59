/** COPY and ADD: what they read, with what options, and that none of it is an address. Pure. */
import { type Common, type Flags, isOn, one, readFlags, reading, readWords, refuseFlags } from './dockerfile-flags.ts'
import { type Escape, refused, unreadable } from './dockerfile-lines.ts'
import { plainWords, splitWords } from './dockerfile-words.ts'
import { readHeredocWord } from './heredocs.ts'

/** What the engine's own COPY cannot do. */
export interface CopyExtras {
  /** Octal, as written, with variables. */
  chmod: string | null
  /** Patterns, as written. */
  excludes: string[]
  parents: boolean
  /** Every source is a pattern of files in the context: none of them needs to match. */
  mayMatchNothing: boolean
  /** Sources in their order, and the destination; quotes left in them. */
  words: string[]
}

export interface CopyInstruction extends Common {
  kind: 'copy'
  word: 'COPY' | 'ADD'
  /** Stage or image, as written. */
  from: string | null
  chown: string | null
  rest: string
  /** Null for what the engine's own COPY does. */
  extras: CopyExtras | null
}

/** What the engine would fetch by itself is decided on characters: none of these can name an address. */
const literal = /^[A-Za-z0-9._/*?-]+$/

const refuseAdd = (rest: string, { line }: Common): void => {
  const words = plainWords(rest)
  const fits = (source: string): boolean => literal.test(source) || readHeredocWord(source) !== null
  if (words.length > 1 && words.slice(0, -1).every(fits)) return
  throw refused(
    line,
    'ADD accepts only plain paths in the repository (letters, digits and . _ / * ? -), not URLs or variables: download in a RUN step, which has network access, or use COPY.',
  )
}

/** The words of a COPY in either form. */
const copyWords = (rest: string, { line }: Common, sign: Escape): string[] => {
  const exec = rest.startsWith('[') ? readWords(rest, line) : null
  return exec ?? splitWords(rest, sign)
}

const isPattern = (word: string): boolean => /[*?[]/.test(word)

const readExtras = (flags: Flags, rest: string, common: Common, sign: Escape): CopyExtras | null => {
  const words = copyWords(rest, common, sign)
  const sources = words.slice(0, -1)
  const mayMatchNothing =
    !flags.has('from') && sources.length > 0 && sources.every(isPattern) && words.at(-1)!.endsWith('/')
  const chmod = one(flags, 'chmod')
  const excludes = flags.get('exclude') ?? []
  const parents = isOn(flags, 'parents', common)
  if (chmod !== null && !/^(?:[0-7]{3,4}|\$[A-Za-z0-9_${}:+-]+)$/.test(chmod))
    throw unreadable(common.line, '--chmod must be an octal number like 755.')
  if (flags.has('from') && (excludes.length > 0 || parents))
    throw unreadable(
      common.line,
      'COPY --exclude and --parents are only supported for files of the build, not with --from.',
    )
  if (flags.has('from') && (common.heredocs ?? []).length > 0)
    throw unreadable(common.line, 'COPY --from cannot have a here-document.')
  const isPlain = chmod === null && excludes.length === 0 && !parents && !mayMatchNothing
  if (isPlain && (common.heredocs ?? []).length === 0) return null
  if (sources.length === 0) throw unreadable(common.line, 'it needs a source and a destination.')
  if (parents && (common.heredocs ?? []).length > 0)
    throw unreadable(common.line, 'COPY --parents cannot have a here-document.')
  return { chmod, excludes, parents, mayMatchNothing, words }
}

const copyFlags = ['chown', 'chmod', 'link', 'exclude']

export const readCopy = (word: 'COPY' | 'ADD', text: string, common: Common, sign: Escape): CopyInstruction => {
  const { flags, rest } = readFlags(text, common, 'exclude')
  if (flags.has('checksum') || flags.has('keep-git-dir')) reading(common, () => refuseAdd('', common))
  refuseFlags(word, flags, [...copyFlags, ...(word === 'COPY' ? ['from', 'parents'] : ['unpack'])], common)
  if (word === 'ADD') reading(common, () => refuseAdd(rest, common))
  const from = one(flags, 'from')
  if (from !== null && !/^[A-Za-z0-9._/:@-]+$/.test(from))
    throw refused(common.line, 'COPY --from accepts only the literal name of a stage or an image, without variables.')
  const chown = one(flags, 'chown')
  if (chown !== null && !/^[A-Za-z0-9._:${}+-]+$/.test(chown)) throw unreadable(common.line, '--chown cannot be read.')
  // A layer that depends on nothing before it is an optimization: the files are the same.
  isOn(flags, 'link', common)
  const extracts = word === 'ADD' && (!flags.has('unpack') || isOn(flags, 'unpack', common))
  const extras = readExtras(flags, rest, common, sign)
  return { ...common, kind: 'copy', word: extracts ? 'ADD' : 'COPY', from, chown, rest, extras }
}
