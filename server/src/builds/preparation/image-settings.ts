/**
 * Instructions that only set something in the image: ENV, LABEL, EXPOSE, VOLUME, WORKDIR, USER, STOPSIGNAL,
 * HEALTHCHECK and those that are passed on as they are. Read here as BuildKit reads them, so that an engine with an
 * older parser gets only syntax that it supports. Pure.
 */
import { type Common, type Flags, one, readFlags, reading, readWords, refuseFlags } from './dockerfile-flags.ts'
import { type Escape, unreadable } from './dockerfile-lines.ts'
import { checkWord, plainWords, splitWords } from './dockerfile-words.ts'

export type Setting =
  /** ENV and LABEL: names and values as written, with variables. */
  | { type: 'pairs'; pairs: [name: string, value: string][] }
  /** EXPOSE and VOLUME: words as written, with variables. */
  | { type: 'words'; words: string[] }
  /** WORKDIR, USER and STOPSIGNAL: one value as written, with variables. */
  | { type: 'value'; value: string }
  | { type: 'healthcheck'; options: HealthOption[]; startInterval: string | null; test: string }
  /** CMD, ENTRYPOINT, SHELL and MAINTAINER, which have no variables. */
  | { type: 'text' }

/** An option that every engine knows, such as `interval` with `30s`. */
type HealthOption = [name: string, value: string]

/** `A=b "C"=d`, or the older `A the rest of the line`. */
const readPairs = (word: string, rest: string, { line }: Common, sign: Escape): [string, string][] => {
  const words = splitWords(rest, sign)
  const [first = ''] = words
  if (first !== '' && !first.includes('=')) {
    const value = rest.slice(first.length).trim()
    if (value === '') throw unreadable(line, `${word} ${first.slice(0, 40)} has no value: write name=value.`)
    return [[first, value]]
  }
  return words.map((each) => {
    const equals = each.indexOf('=')
    if (equals < 1) throw unreadable(line, `${word} has ${each.slice(0, 40)}, which is not of the form name=value.`)
    return [each.slice(0, equals), each.slice(equals + 1)]
  })
}

const durationUnits: Record<string, number> = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1000, m: 60_000, h: 3_600_000 }

const readDuration = (text: string): number | null => {
  if (/^[+-]?0$/.test(text)) return 0
  if (text.length > 60 || !/^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|ms|s|m|h))+$/.test(text)) return null
  const parts = [...text.matchAll(/(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)/g)]
  const sum = parts.reduce((all, [, count, unit]) => all + Number(count) * durationUnits[unit!]!, 0)
  return text.startsWith('-') ? -sum : sum
}

const durations = ['interval', 'timeout', 'start-period', 'start-interval']

/** Null for a missing option, or one that is 0: then the default applies. */
const healthOption = (flags: Flags, name: string, { line }: Common): string | null => {
  const value = one(flags, name)
  if (value === null || value === '') return null
  const what = `HEALTHCHECK --${name}`
  if (name === 'retries') {
    if (!/^\d{1,9}$/.test(value)) throw unreadable(line, `${what} must be a number like 3.`)
    return Number(value) === 0 ? null : value
  }
  const ms = readDuration(value)
  if (ms === null) throw unreadable(line, `${what} must be a duration like 30s or 1m30s.`)
  if (ms === 0) return null
  if (ms < 1) throw unreadable(line, `${what} cannot be shorter than 1ms.`)
  return value
}

const readHealthcheck = (text: string, common: Common): Setting => {
  const { flags, rest } = readFlags(text, common)
  refuseFlags('HEALTHCHECK', flags, [...durations, 'retries'], common)
  const [word = '', ...more] = plainWords(rest)
  const kind = word.toUpperCase()
  if (kind !== 'NONE' && kind !== 'CMD') throw unreadable(common.line, 'HEALTHCHECK needs CMD and a command, or NONE.')
  if (kind === 'NONE' && more.length > 0) throw unreadable(common.line, 'HEALTHCHECK NONE has no arguments.')
  if (kind === 'CMD' && more.length === 0) throw unreadable(common.line, 'HEALTHCHECK CMD has no command.')
  const options = ['interval', 'timeout', 'start-period', 'retries'].flatMap((name): HealthOption[] => {
    const value = healthOption(flags, name, common)
    return value === null ? [] : [[name, value]]
  })
  return { type: 'healthcheck', options, startInterval: healthOption(flags, 'start-interval', common), test: rest }
}

const readSettingWords = (word: string, rest: string, { line }: Common): string[] => {
  const list = word === 'VOLUME' && rest.startsWith('[') ? readWords(rest, line) : null
  return list ?? plainWords(rest)
}

const readUnchecked = (word: string, rest: string, common: Common, sign: Escape): Setting => {
  if (word === 'ENV' || word === 'LABEL') return { type: 'pairs', pairs: readPairs(word, rest, common, sign) }
  if (word === 'EXPOSE' || word === 'VOLUME') return { type: 'words', words: readSettingWords(word, rest, common) }
  if (word === 'WORKDIR' || word === 'USER' || word === 'STOPSIGNAL') return { type: 'value', value: rest }
  return word === 'HEALTHCHECK' ? readHealthcheck(rest, common) : { type: 'text' }
}

const wordsOf = (setting: Setting): string[] => {
  if (setting.type === 'pairs') return setting.pairs.flat()
  if (setting.type === 'words') return setting.words
  return setting.type === 'value' ? [setting.value] : []
}

/** Rejects with `build_failed` an instruction that is invalid whatever its variables are. */
export const readSetting = (word: string, rest: string, common: Common, sign: Escape): Setting => {
  const setting = readUnchecked(word, rest, common, sign)
  if (rest === '' && setting.type !== 'text') throw unreadable(common.line, `${word} has no arguments.`)
  reading(common, () => {
    for (const each of wordsOf(setting)) checkWord(each, sign)
  })
  return setting
}
