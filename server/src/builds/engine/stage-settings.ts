/** What ENV, LABEL, HEALTHCHECK and the like say to the engine, once their variables have values. Pure. */
import { type SettingInstruction, valueIn } from '../preparation/dockerfile.ts'
import { type Escape, unreadable } from '../preparation/dockerfile-lines.ts'
import type { Setting } from '../preparation/image-settings.ts'
import type { EngineText } from './engine-text.ts'

export interface SettingPlace {
  sign: Escape
  lookUp(name: string): string | undefined
  text: EngineText
  knowsStartInterval: boolean
}

export interface SettingLine {
  /** Null if the engine has nothing to do. */
  text: string | null
  /** Variables that the image has from here on. */
  env: [name: string, value: string][]
  /** For the log: what of the instruction has no effect. */
  note: string | null
}

const pairsLine = (each: SettingInstruction, pairs: [string, string][], place: SettingPlace): SettingLine => {
  const { sign, lookUp, text } = place
  const found = pairs.map((pair): [string, string] => {
    const [name, value] = [valueIn(each, pair[0], sign, lookUp), valueIn(each, pair[1], sign, lookUp)]
    if (name === '') throw unreadable(each.line, `${each.word} has an empty name.`)
    if (name.includes('=')) throw unreadable(each.line, `${each.word} cannot have = in a name.`)
    return [name, value]
  })
  const words = found.map(([name, value]) => `${text.quoted(name)}=${text.quoted(value)}`)
  return { text: `${each.word} ${words.join(' ')}`, env: each.word === 'ENV' ? found : [], note: null }
}

const portWord = /^[A-Za-z0-9.:/[\]-]{1,100}$/

const wordsLine = (each: SettingInstruction, words: string[], place: SettingPlace): string | null => {
  const { sign, lookUp, text } = place
  const values = words.map((word) => valueIn(each, word, sign, lookUp))
  if (each.word === 'VOLUME') {
    if (values.includes('')) throw unreadable(each.line, 'VOLUME has an empty path.')
    return `VOLUME ${text.list(values)}`
  }
  // A variable may hold several ports.
  const ports = values.flatMap((value) => value.split(/\s+/)).filter((value) => value !== '')
  const wrong = ports.find((port) => !portWord.test(port))
  if (wrong !== undefined)
    throw unreadable(
      each.line,
      `EXPOSE has ${JSON.stringify(wrong.slice(0, 40))}: a port must be like 80, 53/udp or 8000-8010.`,
    )
  return ports.length === 0 ? null : `EXPOSE ${ports.join(' ')}`
}

const healthLine = (setting: Extract<Setting, { type: 'healthcheck' }>, knowsStartInterval: boolean): SettingLine => {
  const { options, startInterval, test } = setting
  const passed = startInterval !== null && knowsStartInterval
  const all = [...options, ...(passed ? [['start-interval', startInterval]] : [])]
  const note =
    startInterval === null || passed
      ? null
      : `HEALTHCHECK --start-interval=${startInterval} has no effect: this Docker engine is older than version 25. The other options act.\n`
  return { text: ['HEALTHCHECK', ...all.map(([name, value]) => `--${name}=${value}`), test].join(' '), env: [], note }
}

export const settingLine = (each: SettingInstruction, place: SettingPlace): SettingLine => {
  const { word, rest, setting } = each
  const plain = (text: string): SettingLine => ({ text, env: [], note: null })
  if (setting.type === 'pairs') return pairsLine(each, setting.pairs, place)
  if (setting.type === 'healthcheck') return healthLine(setting, place.knowsStartInterval)
  if (setting.type === 'words') {
    const text = wordsLine(each, setting.words, place)
    return { text, env: [], note: text === null ? 'EXPOSE has no effect: its variables are empty.\n' : null }
  }
  if (setting.type === 'text') return plain(`${word} ${rest}`)
  const value = valueIn(each, setting.value, place.sign, place.lookUp)
  // Without a user, the image's programs run as root.
  if (value === '' && word !== 'USER')
    throw unreadable(each.line, `${word} is empty once its variables have their values.`)
  return plain(`${word} ${place.text.quoted(value)}`)
}
