/** Reading our own TypeScript lightly, for the rules of the house: no parser, so it sees what a careful reader sees. */
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'

export interface SourceFile {
  /** From the root of the repository, with forward slashes: `server/src/lib/log.ts`. */
  path: string
  text: string
}

/** All TypeScript files below the folders, which are given from `root`. */
export const readSources = (root: string, folders: string[]): SourceFile[] =>
  folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name) && !entry.parentPath.includes('node_modules'))
      .map((entry) => join(entry.parentPath, entry.name))
      .sort()
      .map((path) => ({ path: relative(root, path), text: readFileSync(path, 'utf8') })),
  )

const tokens = [
  /\/\/[^\n]*|\/\*[\s\S]*?\*\//, // comments
  /'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"/, // strings
  /(?<=[=(,:[!&|?{};]\s*|return\s+|=>\s*)\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/[a-z]*/, // regular expressions
]
const flat = new RegExp(tokens.map((token) => `(?:${token.source})`).join('|'), 'g')
// Innermost first: a template in a template's `${}` goes before the outer one.
const template = /`(?:\\[\s\S]|\$\{[^`{}]*(?:\{[^`{}]*\}[^`{}]*)*\}|[^`\\])*?`/g

const blank = (text: string): string => text.replace(/[^\n]/g, ' ')

/** The text with comments, strings, templates and regular expressions blanked out; lines stay where they are. */
export const codeOnly = (text: string): string => text.replace(flat, blank).replace(template, blank)

/** The text without its comments, strings as they are. */
export const withoutComments = (text: string): string =>
  text.replace(flat, (found) => (/^\/[/*]/.test(found) ? blank(found) : found))

const anyToken = new RegExp(`${template.source}|${flat.source}`, 'g')

/** The string literals and templates of a source, with their quotes. */
export const stringsOf = (text: string): string[] =>
  [...text.matchAll(anyToken)].map(([found]) => found).filter((found) => /^['"`]/.test(found))

/** The comments of a source without their marks; `//` on lines that follow each other are one comment. */
export const commentsOf = (text: string): string[] => {
  const comments: string[] = []
  let end = -1
  for (const { 0: found, index } of text.matchAll(anyToken)) {
    if (!/^\/[/*]/.test(found)) continue
    const follows = found.startsWith('//') && end >= 0 && /^\n[ \t]*$/.test(text.slice(end, index))
    const words = found.replace(/^\/(?:\/|\*+)|\*\/$/g, '').replaceAll(/^[ \t]*\*(?: |$)/gm, '')
    if (follows) comments.push(`${comments.pop()} ${words}`)
    else comments.push(words)
    end = found.startsWith('//') ? index + found.length : -1
  }
  return comments.map((words) => words.trim())
}

const testTitle =
  /\b(?:test|it|describe|hold)(?:\.\w+)?\(\s*('(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\[\s\S]|[^`\\])*`)/g

/** The titles of the tests in a source. */
export const testTitlesOf = (text: string): string[] =>
  [...withoutComments(text).matchAll(testTitle)].map(([, title = '']) => title.slice(1, -1))

/** What a page of the console shows: its strings of several words, and what is between its tags. */
export const shownTextsOf = (text: string): string[] => {
  const between = [...withoutComments(text).matchAll(/[>}]([^<>{}()=;]*\w\s+\w[^<>{}()=;]*)[<{]/g)]
  return stringsOf(text)
    .filter((found) => found.includes(' '))
    .map((found) => found.slice(1, -1))
    .concat(between.map(([, words = '']) => words))
}

export interface Import {
  from: string
  isTypeOnly: boolean
  names: string
}

/** Static imports and re-exports, and `import()` of a literal. */
export const importsOf = (text: string): Import[] => {
  const code = withoutComments(text)
  const statics = [
    ...code.matchAll(/^import\s+(type\s+)?(?:([^'";]*?)\s+from\s+)?['"]([^'"]+)['"]/gm),
    ...code.matchAll(/^export\s+(type\s+)?(\{[^}]*\}|\*[^'";]*?)\s*from\s+['"]([^'"]+)['"]/gm),
  ]
  const dynamics = [...code.matchAll(/\bimport\(\s*['"]([^'"]+)['"]/g)]
  return [
    ...statics.map(([, type, names = '', from = '']) => {
      const inside = names.match(/^\{([^}]*)\}$/)?.[1]?.split(',') ?? [names]
      const used = inside.map((name) => name.trim()).filter((name) => name !== '')
      const isTypeOnly = type !== undefined || (used.length > 0 && used.every((name) => name.startsWith('type ')))
      return { from, names, isTypeOnly }
    }),
    ...dynamics.map(([, from = '']) => ({ from, names: '', isTypeOnly: false })),
  ]
}

export interface FunctionSize {
  /** 1 is the first line of the file. */
  line: number
  lines: number
}

const matchingOpen = (code: string, close: number): number => {
  let depth = 0
  for (let at = close; at >= 0; at--) {
    if (code[at] === ')') depth++
    if (code[at] === '(' && --depth === 0) return at
  }
  return -1
}

/** Whether the brace at `at` opens a function's body, not a block, an object or a type. */
const opensFunction = (code: string, at: number): boolean => {
  const before = code.slice(Math.max(0, at - 400), at).trimEnd()
  if (before.endsWith('=>')) return true
  const close = before.match(/\)\s*(:[^()=]*)?$/)
  if (close === null) return false
  const word = before
    .slice(0, Math.max(0, matchingOpen(before, close.index!)))
    .match(/([\w$]+)\s*(?:<[^<>]*>)?\s*$/)?.[1]
  return word !== undefined && !['if', 'for', 'while', 'switch', 'catch', 'with', 'await'].includes(word)
}

/** Every function with a body in braces. Nested ones count for themselves and for what holds them. */
export const functionSizes = (text: string): FunctionSize[] => {
  const code = codeOnly(text)
  const sizes: FunctionSize[] = []
  const open: { line: number; isFunction: boolean }[] = []
  let line = 1
  for (let at = 0; at < code.length; at++) {
    if (code[at] === '\n') line++
    if (code[at] === '{') open.push({ line, isFunction: opensFunction(code, at) })
    if (code[at] !== '}') continue
    const start = open.pop()
    if (start?.isFunction) sizes.push({ line: start.line, lines: line - start.line + 1 })
  }
  return sizes
}
