/**
 * What an existing client of the public API expects, read from the type declarations of its npm package: for each of
 * its calls the type of the body it sends and of the answer it takes. A value fits when every required key exists,
 * every value has its type and every word is in its list; more fields never hurt.
 */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

type Shape =
  | { is: 'word'; name: string }
  | { is: 'literal'; value: string }
  | { is: 'list'; of: Shape }
  | { is: 'fields'; fields: Map<string, { optional: boolean; shape: Shape }>; rest: Shape | null }
  | { is: 'any of' | 'all of'; shapes: Shape[] }

const anything: Shape = { is: 'word', name: 'any' }

/** Reads type expressions, of which declarations made by a generator use few forms. */
const createReader = (text: string) => {
  const tokens = text.match(/'[^']*'|"[^"]*"|[\w$.]+|[{}[\]<>()|&:;?,=]/g) ?? []
  let at = 0
  const peek = (): string | undefined => tokens[at]
  const next = (): string => {
    const token = tokens[at]
    if (token === undefined) throw new Error(`a type ends too early: ${text}`)
    at += 1
    return token
  }
  const take = (token: string): boolean => {
    if (peek() !== token) return false
    at += 1
    return true
  }
  const separated = (mark: '|' | '&', read: () => Shape): Shape => {
    take(mark)
    const shapes = [read()]
    while (take(mark)) shapes.push(read())
    return shapes.length === 1 ? shapes[0]! : { is: mark === '|' ? 'any of' : 'all of', shapes }
  }
  const readFields = (): Shape => {
    const fields = new Map<string, { optional: boolean; shape: Shape }>()
    let rest: Shape | null = null
    while (!take('}')) {
      take('readonly')
      if (take('[')) {
        while (!take(']')) next()
        take(':')
        rest = readShape()
      } else {
        const name = next().replaceAll(/['"]/g, '')
        const optional = take('?')
        take(':')
        fields.set(name, { optional, shape: readShape() })
      }
      take(';')
    }
    return { is: 'fields', fields, rest }
  }
  const readOne = (): Shape => {
    if (take('{')) return readFields()
    if (take('(')) {
      const inner = readShape()
      take(')')
      return inner
    }
    const token = next()
    if (/^['"]/.test(token)) return { is: 'literal', value: token.slice(1, -1) }
    if ((token === 'Array' || token === 'Set') && take('<')) {
      const of = readShape()
      take('>')
      return { is: 'list', of }
    }
    return { is: 'word', name: token }
  }
  const readPostfix = (): Shape => {
    const shape = readOne()
    if (peek() !== '[' || tokens[at + 1] !== ']') return shape
    at += 2
    return { is: 'list', of: shape }
  }
  const readShape = (): Shape => separated('|', () => separated('&', readPostfix))
  return readShape
}

const source = readFileSync(createRequire(import.meta.url).resolve('qovery-typescript-axios/dist/api.d.ts'), 'utf8')
const code = source.replaceAll(/\/\*[\s\S]*?\*\//g, '')

/** From `start` to the end of a block, or of a statement. */
const textFrom = (start: number, end: '}' | ';'): string => {
  let depth = 0
  for (let at = start; at < code.length; at += 1) {
    if (code[at] === '{') depth += 1
    if (code[at] === '}') depth -= 1
    if (depth === 0 && code[at] === end) return code.slice(start, at + 1)
  }
  return ''
}

const shapeTexts = new Map<string, string>()
for (const match of code.matchAll(/^export interface (\w+) (?=\{)/gm))
  shapeTexts.set(match[1]!, textFrom(match.index + match[0].length, '}'))
for (const match of code.matchAll(/^export type (\w+) = (?!typeof)/gm))
  shapeTexts.set(match[1]!, textFrom(match.index + match[0].length, ';'))
const lists = new Map<string, Set<string>>()
for (const match of code.matchAll(/^export declare const (\w+): (?=\{)/gm)) {
  const values = [...textFrom(match.index + match[0].length, '}').matchAll(/: "([^"]*)"/g)].map(([, value]) => value!)
  lists.set(match[1]!, new Set(values))
}

const shapes = new Map<string, Shape>()
const shapeOf = (name: string): Shape => {
  let shape = shapes.get(name)
  if (shape === undefined) {
    const text = shapeTexts.get(name)
    shape = text === undefined ? anything : createReader(text)()
    shapes.set(name, shape)
  }
  return shape
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const judgeWord = (name: string, value: unknown, at: string): string[] => {
  const list = lists.get(name)
  if (list !== undefined)
    return typeof value === 'string' && list.has(value) ? [] : [`${at} is no ${name}: ${JSON.stringify(value)}`]
  if (shapeTexts.has(name)) return judge(shapeOf(name), value, at)
  if (name === 'any' || name === 'unknown' || name === 'File' || name === 'void' || name === 'Blob') return []
  const type = value === null ? 'null' : typeof value
  if (name === 'object') return isObject(value) ? [] : [`${at} is no object`]
  return type === name ? [] : [`${at} is ${type}, not ${name}`]
}

const judgeFields = (shape: Extract<Shape, { is: 'fields' }>, value: unknown, at: string): string[] => {
  if (!isObject(value)) return [`${at} is no object`]
  const known = [...shape.fields].flatMap(([name, field]) => {
    const inner = value[name]
    // Clients treat an optional field that is null like a missing one.
    if (inner === undefined || (inner === null && field.optional))
      return field.optional ? [] : [`${at}.${name} is missing`]
    return judge(field.shape, inner, `${at}.${name}`)
  })
  const { rest } = shape
  if (rest === null) return known
  const others = Object.entries(value).filter(([name]) => !shape.fields.has(name))
  return [...known, ...others.flatMap(([name, inner]) => judge(rest, inner, `${at}.${name}`))]
}

const judge = (shape: Shape, value: unknown, at: string): string[] => {
  if (shape.is === 'word') return judgeWord(shape.name, value, at)
  if (shape.is === 'literal') return value === shape.value ? [] : [`${at} is not '${shape.value}'`]
  if (shape.is === 'fields') return judgeFields(shape, value, at)
  if (shape.is === 'all of') return shape.shapes.flatMap((each) => judge(each, value, at))
  if (shape.is === 'list')
    return Array.isArray(value)
      ? value.flatMap((item, index) => judge(shape.of, item, `${at}[${index}]`))
      : [`${at} is no list`]
  const tries = shape.shapes.map((each) => judge(each, value, at))
  return tries.sort((a, b) => a.length - b.length)[0]!
}

interface ClientCall {
  answer: Shape
  /** Type of the body, null for a call without one. */
  body: Shape | null
}

const calls = new Map<string, ClientCall>()
for (const [, name, parameters, answer] of code.matchAll(
  /^ {4}(\w+)\((.*)\): Promise<import\("axios"\)\.AxiosResponse<(.*), any(?:, \{\})?>>;$/gm,
)) {
  const types = [...parameters!.matchAll(/(\w+)\??: ([^,]+)/g)].map(([, , type]) => type!)
  const body = types.findLast((type) => shapeTexts.has(type) && !lists.has(type))
  calls.set(name!, { answer: createReader(answer!)(), body: body === undefined ? null : shapeOf(body) })
}

/** The name of the client's method: `get-cluster-logs` is `getClusterLogs`. */
const methodOf = (operationId: string): string =>
  operationId
    .replaceAll(/-(\w)/g, (_, letter: string) => letter.toUpperCase())
    .replace(/^[A-Z]/, (letter) => letter.toLowerCase())

/** What the client has against a body that it would send; null when it has no such call. */
export const judgeBody = (operationId: string, value: unknown): string[] | null => {
  const call = calls.get(methodOf(operationId))
  return call === undefined ? null : call.body === null ? [] : judge(call.body, value, 'body')
}

/** What the client has against an answer; null when it has no such call. */
export const judgeAnswer = (operationId: string, value: unknown): string[] | null => {
  const call = calls.get(methodOf(operationId))
  return call === undefined ? null : judge(call.answer, value, 'answer')
}
