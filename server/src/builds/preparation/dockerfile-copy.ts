/** COPY and ADD: their sources and options. Pure. */
import { posix } from 'node:path'
import { type Common, type Flags, isOn, one, readFlags, reading, readWords, refuseFlags } from './dockerfile-flags.ts'
import { type Escape, refused, unreadable } from './dockerfile-lines.ts'
import { checkWord, plainWords } from './dockerfile-words.ts'
import { readFileMode } from './file-modes.ts'
import { readHeredocWord } from './heredocs.ts'

export interface CopyInstruction extends Common {
  kind: 'copy'
  word: 'COPY' | 'ADD'
  /** Stage or image, as written. */
  from: string | null
  /** As written, with variables; so are `chmod`, `checksum`, `excludes` and `words`. */
  chown: string | null
  chmod: string | null
  /** For a download: `sha256:…`. */
  checksum: string | null
  excludes: string[]
  parents: boolean
  /** Whether archives are unpacked; null: those of the build are, downloads are not. */
  unpack: boolean | null
  /** Sources in their order, and the destination; quotes left in them. */
  words: string[]
}

export type CopySource =
  /** `path` is what the engine gets, `written` may have the `/./` of --parents. */
  { type: 'path'; path: string; written: string } | { type: 'download'; url: string }

const isGitAddress = (source: string): boolean =>
  /^(?:git|ssh):\/\//i.test(source) ||
  /^[A-Za-z0-9-]+@[A-Za-z0-9.-]+:/.test(source) ||
  /^https?:\/\/[^?#]*\.git(?:[?#]|$)/i.test(source)

const gitRefused = 'is the address of a git repository: clone it in a RUN step, or make it a submodule and use COPY.'

/**
 * The source of a COPY, once its variables have values: a path that no engine can mistake for an address. As in
 * BuildKit, `..` does not lead above the folder of the build: it is left out.
 */
export const copiedSource = (source: string): CopySource => ({
  ...{ type: 'path', path: posix.join('/', source), written: source },
})

/** The source of an ADD. Rejects with `build_refused` for a git repository. */
export const addedSource = (source: string, line: number): CopySource => {
  if (isGitAddress(source)) throw refused(line, `ADD ${source.slice(0, 100)} ${gitRefused}`)
  return /^https?:\/\//i.test(source) ? { type: 'download', url: source } : copiedSource(source)
}

const readCopyWords = (rest: string, { line }: Common): string[] => {
  const words = (rest.startsWith('[') ? readWords(rest, line) : null) ?? plainWords(rest)
  if (words.length < 2) throw unreadable(line, 'it needs a source and a destination.')
  return words
}

/** Checks that need no values of variables. */
const checkWords = ({ word, words, chown, chmod, line }: CopyInstruction, sign: Escape): void => {
  for (const each of [...words, chown ?? '', chmod ?? '']) checkWord(each, sign)
  for (const each of words.slice(0, -1)) {
    if (each.includes('<<')) readHeredocWord(each)
    if (word === 'ADD' && each.includes(':') && !each.includes('$')) addedSource(each, line)
  }
}

/** Names or numbers: `user:group`. */
export const readOwner = (text: string, line: number): string => {
  if (!/^[A-Za-z0-9._:+-]+$/.test(text))
    throw unreadable(line, '--chown must be a user, or a user and a group like 1:1.')
  return text
}

const checkOptions = (copy: CopyInstruction, flags: Flags): void => {
  const { line, parents, chmod, chown, heredocs = [] } = copy
  if (flags.has('from') && heredocs.length > 0) throw unreadable(line, 'COPY --from cannot have a here-document.')
  if (parents && heredocs.length > 0) throw unreadable(line, 'COPY --parents cannot have a here-document.')
  if (chmod !== null && !chmod.includes('$')) reading(copy, () => readFileMode(chmod))
  if (chown !== null && !chown.includes('$')) readOwner(chown, line)
}

const optionsOf = { COPY: ['from', 'parents'], ADD: ['unpack', 'checksum', 'keep-git-dir'] }

export const readCopy = (word: 'COPY' | 'ADD', text: string, common: Common, sign: Escape): CopyInstruction => {
  const { flags, rest } = readFlags(text, common, 'exclude')
  refuseFlags(word, flags, ['chown', 'chmod', 'link', 'exclude', ...optionsOf[word]], common)
  const from = one(flags, 'from')
  if (from !== null && !/^[A-Za-z0-9._/:@-]+$/.test(from))
    throw refused(common.line, 'COPY --from accepts only the literal name of a stage or an image, without variables.')
  // A layer that depends on nothing before it is an optimization: the files are the same.
  isOn(flags, 'link', common)
  // It applies to git repositories alone, which are refused.
  isOn(flags, 'keep-git-dir', common)
  const copy: CopyInstruction = {
    ...{ ...common, kind: 'copy', word, from, words: readCopyWords(rest, common) },
    ...{ chown: one(flags, 'chown'), chmod: one(flags, 'chmod'), checksum: one(flags, 'checksum') },
    ...{ excludes: flags.get('exclude') ?? [], parents: isOn(flags, 'parents', common) },
    unpack: flags.has('unpack') ? isOn(flags, 'unpack', common) : null,
  }
  checkOptions(copy, flags)
  reading(common, () => checkWords(copy, sign))
  return copy
}
