/**
 * Parses a Dockerfile strictly: the instructions of Docker's own builders, and nothing else. The engine never sees
 * this text; it gets instructions that we write from the result. Pure. Rejects with `build_failed` if it is not a
 * Dockerfile, and with `build_refused` if it would reach further than a build may.
 */
import { type CopyInstruction, readCopy } from './dockerfile-copy.ts'
import { type Common, type Flags, one, readFlags, reading, readWords, refuseFlags } from './dockerfile-flags.ts'
import { type Escape, joinLines, refused, unreadable } from './dockerfile-lines.ts'
import { expandText, expandWord, splitWords } from './dockerfile-words.ts'
import { type Heredoc, heredocsIn, heredocText } from './heredocs.ts'
import { readSetting, type Setting } from './image-settings.ts'
import { type RunMount, readMount, refuseTooMany, resolveMounts, type StepMount } from './run-mounts.ts'

export interface ArgInstruction extends Common {
  kind: 'arg'
  /** Default as written; null without one. */
  args: [name: string, fallback: string | null][]
}

export interface RunInstruction extends Common {
  kind: 'run'
  /** The words of the exec form; null for the shell form. */
  argv: string[] | null
  command: string
  mounts: RunMount[]
  /** Without any network. */
  isOffline: boolean
  /** A here-document that is a program of its own: the command starts it. */
  script: { path: string; text: string } | null
}

/** One that sets something in the image. */
export interface SettingInstruction extends Common {
  kind: 'setting'
  word: string
  rest: string
  setting: Setting
}

interface OnBuildInstruction extends Common {
  kind: 'onbuild'
  word: string
  rest: string
}

export type { CopyInstruction } from './dockerfile-copy.ts'

export type Instruction = ArgInstruction | RunInstruction | CopyInstruction | SettingInstruction | OnBuildInstruction

export interface Stage extends Common {
  /** Lower case; null for a stage without a name. */
  name: string | null
  /** As written, with variables. */
  base: string
  platform: string | null
  instructions: Instruction[]
}

export interface Dockerfile {
  sign: Escape
  globals: ArgInstruction[]
  stages: Stage[]
  steps: number
}

const settings = new Set(
  'CMD ENTRYPOINT ENV EXPOSE HEALTHCHECK LABEL MAINTAINER SHELL STOPSIGNAL USER VOLUME WORKDIR'.split(' '),
)
/** The engine reads no longer lines. */
const maxLine = 60_000
const maxStages = 200
const unsupported = 'is not supported.'

/** The command of a RUN with its here-documents: as BuildKit passes it to the shell. */
const withHeredocs = (rest: string, heredocs: Heredoc[]): Pick<RunInstruction, 'command' | 'script'> => {
  const [first] = heredocs
  if (first === undefined) return { command: rest, script: null }
  // Only the operator: the text is the command itself, or a program for the interpreter that it names.
  if (heredocs.length === 1 && splitWords(rest, '\\').length === 1) {
    const text = heredocText(first)
    const path = `/dev/pipes/${first.name}`
    return first.content.startsWith('#!') ? { command: path, script: { path, text } } : { command: text, script: null }
  }
  return { command: `${rest}\n${heredocs.map(({ content, name }) => `${content}${name}`).join('\n')}`, script: null }
}

const isOffline = (flags: Flags, { line }: Common): boolean => {
  const network = one(flags, 'network') ?? 'default'
  if (network === 'host') throw refused(line, 'RUN --network=host is refused: a build has a network of its own.')
  if (network !== 'default' && network !== 'none') throw unreadable(line, `RUN --network=${network} ${unsupported}`)
  return network === 'none'
}

const refuseSecurity = (flags: Flags, { line }: Common): void => {
  if (flags.has('security') && one(flags, 'security') !== 'sandbox')
    throw refused(line, 'RUN --security=insecure is refused: a build has no privileges.')
}

const readRun = (text: string, common: Common): RunInstruction => {
  const { line, heredocs = [] } = common
  const { flags, rest } = readFlags(text, common, 'mount')
  refuseFlags('RUN', flags, ['mount', 'network', 'security'], common)
  if (rest === '') throw unreadable(line, 'RUN has no command.')
  refuseSecurity(flags, common)
  const mounts = reading(common, () => {
    const all = (flags.get('mount') ?? []).map(readMount)
    refuseTooMany(all)
    return all
  })
  const argv = rest.startsWith('[') ? readWords(rest, line) : null
  return { ...common, kind: 'run', argv, ...withHeredocs(rest, heredocs), mounts, isOffline: isOffline(flags, common) }
}

const readArg = (rest: string, common: Common, sign: Escape): ArgInstruction => {
  const args = splitWords(rest, sign).map((word): [string, string | null] => {
    const plain = /^["']/.test(word) ? bare(word, sign, common) : word
    const equals = plain.indexOf('=')
    const name = equals === -1 ? plain : plain.slice(0, equals)
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
      throw unreadable(common.line, 'the name of an ARG can have only letters, digits and underscores.')
    return [name, equals === -1 ? null : plain.slice(equals + 1)]
  })
  if (args.length === 0) throw unreadable(common.line, 'ARG has no name.')
  return { ...common, kind: 'arg', args }
}

/** `"A=b c"`: quotes around all of it. */
const bare = (word: string, _: Escape, { line }: Common): string => {
  if (word.length < 2 || word.at(-1) !== word[0]) throw unreadable(line, 'a quote is not closed.')
  const [name = '', ...value] = word.slice(1, -1).split('=')
  return value.length === 0 ? name : `${name}=${word[0]}${value.join('=')}${word[0]}`
}

const splitKeyword = (text: string): [word: string, rest: string] => {
  const end = text.search(/\s/)
  return end === -1 ? [text.toUpperCase(), ''] : [text.slice(0, end).toUpperCase(), text.slice(end).trim()]
}

/** The end of an instruction must be the same for the engine as here. */
const refuseOpen = ({ text, line }: Common, sign: Escape): void => {
  if (text.endsWith(sign)) throw unreadable(line, `it ends with ${sign}.`)
  if (text.length > maxLine) throw unreadable(line, `it is longer than ${maxLine} characters.`)
}

const readInstruction = (common: Common, sign: Escape): Instruction => {
  const [word, rest] = splitKeyword(common.text)
  if (word === 'RUN') return readRun(rest, common)
  refuseOpen(common, sign)
  if (word === 'ARG') return readArg(rest, common, sign)
  if (word === 'COPY' || word === 'ADD') return readCopy(word, rest, common, sign)
  if (word === 'ONBUILD') {
    readTrigger(rest, common, sign)
    return { ...common, kind: 'onbuild', word, rest }
  }
  if (!settings.has(word)) throw unreadable(common.line, `unknown instruction: ${word.slice(0, 40)}`)
  return { ...common, kind: 'setting', word, rest, setting: readSetting(word, rest, common, sign) }
}

/** The instruction that an ONBUILD stores for later: one that reads nothing but the context. */
const readTrigger = (text: string, common: Common, sign: Escape): Instruction => {
  const [word] = splitKeyword(text)
  if (word === 'ONBUILD' || word === 'FROM' || word === 'MAINTAINER')
    throw unreadable(common.line, `ONBUILD ${word} is not allowed.`)
  if (reading(common, () => heredocsIn(text)).length > 0)
    throw unreadable(common.line, 'ONBUILD with a here-document is not supported.')
  const found = readInstruction({ ...common, text }, sign)
  if (found.kind === 'run' && found.mounts.length > 0)
    throw unreadable(common.line, 'ONBUILD RUN --mount is not supported.')
  if (found.kind === 'copy' && found.from !== null)
    throw refused(common.line, 'ONBUILD COPY --from is refused: it would read an image that is not in this Dockerfile.')
  return found
}

/** The triggers of a base image. `step` is that of its FROM. */
export const readTriggers = (triggers: readonly string[], { step, line }: Common): Instruction[] =>
  triggers.map((trigger) => {
    const { sign, lines } = joinLines(`FROM scratch\n${trigger}`)
    if (trigger.includes('\n') || trigger.includes('\r') || lines.length !== 2)
      throw unreadable(line, 'the trigger must be a single line.')
    return readTrigger(lines[1]!.text, { step, line, text: lines[1]!.text }, sign)
  })

const stageName = /^[a-z][a-z0-9._-]*$/

const readFrom = (rest: string, common: Common, sign: Escape): Stage => {
  const { flags, rest: words } = readFlags(rest, common)
  refuseFlags('FROM', flags, ['platform'], common)
  const [base = '', as, name] = splitWords(words, sign)
  const count = splitWords(words, sign).length
  if (count !== 1 && !(count === 3 && as!.toLowerCase() === 'as'))
    throw unreadable(common.line, 'FROM must have an image, optionally followed by AS and a name.')
  const own = name?.toLowerCase() ?? null
  if (own !== null && (!stageName.test(own) || own === 'scratch'))
    throw unreadable(
      common.line,
      'the name of a stage must begin with a letter and have only letters, digits and . _ -',
    )
  return { ...common, name: own, base, platform: one(flags, 'platform'), instructions: [] }
}

const addLine = (file: Dockerfile, common: Common): void => {
  const [word, rest] = splitKeyword(common.text)
  const stage = file.stages.at(-1)
  if (word === 'FROM') {
    refuseOpen(common, file.sign)
    const next = readFrom(rest, common, file.sign)
    if (next.name !== null && file.stages.some(({ name }) => name === next.name))
      throw unreadable(common.line, `two stages have the name ${next.name}.`)
    if (file.stages.length === maxStages) throw unreadable(common.line, `it has more than ${maxStages} stages.`)
    file.stages.push(next)
    return
  }
  const read = readInstruction(common, file.sign)
  if (stage !== undefined) stage.instructions.push(read)
  else if (read.kind === 'arg') file.globals.push(read)
  else throw unreadable(common.line, 'only ARG is allowed before the first FROM.')
}

export const parseDockerfile = (text: string): Dockerfile => {
  const { sign, lines } = joinLines(text)
  const file: Dockerfile = { sign, globals: [], stages: [], steps: lines.length }
  for (const [index, { text: joined, line, heredocs }] of lines.entries())
    addLine(file, { step: index + 1, line, text: joined, ...(heredocs.length > 0 ? { heredocs } : {}) })
  if (file.stages.length === 0) throw unreadable(1, 'it has no FROM.')
  return file
}

/** Instructions for a stage that is begun elsewhere: each on one line. */
export const readFragment = (text: string): string[] => {
  const { sign, lines } = joinLines(text)
  if (sign !== '\\') throw refused(1, 'a fragment cannot have directives.')
  return lines.map(({ text: joined, line, heredocs }) => {
    if (heredocs.length > 0) throw unreadable(line, 'a fragment cannot have here-documents.')
    const [word] = splitKeyword(joined)
    if (word === 'FROM' || word === 'ONBUILD')
      throw refused(line, `${word} is not allowed in a fragment: it would start a new image.`)
    const common = { step: 1, line, text: joined }
    refuseOpen(common, sign)
    return readInstruction(common, sign).text
  })
}

/** Every name that an ARG declares anywhere, once. */
export const declaredArgs = ({ globals, stages }: Dockerfile): string[] => {
  const all = [...globals, ...stages.flatMap(({ instructions }) => instructions)]
  return [...new Set(all.flatMap((each) => (each.kind === 'arg' ? each.args.map(([name]) => name) : [])))]
}

/** The values of `variables` that the Dockerfile declares, sorted by name. */
export const pickBuildArgs = (file: Dockerfile, variables: Record<string, string>): Record<string, string> =>
  Object.fromEntries(
    declaredArgs(file)
      .sort()
      .flatMap((name) => (Object.hasOwn(variables, name) ? [[name, variables[name]!]] : [])),
  )

/** A word's value; an error names the line. */
export const valueIn = (
  at: Pick<Common, 'line'>,
  word: string,
  sign: Escape,
  lookUp: (name: string) => string | undefined,
): string => reading(at, () => expandWord(word, sign, lookUp))

/** The text of a here-document with the values of its variables, if it has any. */
export const heredocValue = (
  at: Pick<Common, 'line'>,
  heredoc: Heredoc,
  lookUp: (name: string) => string | undefined,
): string => {
  const text = heredocText(heredoc)
  return heredoc.expand ? reading(at, () => expandText(text, lookUp)) : text
}

export const mountsOf = (run: RunInstruction, folder: string, expand: (text: string) => string): StepMount[] =>
  reading(run, () => resolveMounts(run.mounts, folder, expand))
