/** `--chmod` of COPY and ADD: an octal number, or symbols as chmod(1) has them (`u=rwX,go=rX`, `+x`). Pure. */
import { BadWord } from './bad-word.ts'

interface ModeClause {
  /** Any of `u`, `g`, `o`. */
  who: string
  operator: '+' | '-' | '='
  /** Any of `r`, `w`, `x`, `X`, `s`, `t`, or one of `u`, `g`, `o` whose bits are copied. */
  bits: string
}

export type FileMode = number | ModeClause[]

const shifts: Record<string, number> = { u: 6, g: 3, o: 0 }
const maxChars = 200

/** `+rwx`, `=u` …, several of them in one clause. */
const readActions = (who: string, text: string): ModeClause[] =>
  [...text.matchAll(/([+=-])([rwxXst]*|[ugo])(?=[+=-]|$)/g)].map(([, operator, bits]) => ({
    who,
    operator: operator as ModeClause['operator'],
    bits: bits!,
  }))

/** Throws `BadWord`. Without `u`, `g` or `o` a clause is for all three: there is no umask. */
export const readFileMode = (text: string): FileMode => {
  if (/^[0-7]{1,4}$/.test(text)) return Number.parseInt(text, 8)
  const clauses = text.length > maxChars ? [] : text.split(',')
  const isClause = (each: string): boolean => /^[ugoa]*(?:[+=-](?:[rwxXst]*|[ugo]))+$/.test(each)
  if (clauses.length === 0 || !clauses.every(isClause))
    throw new BadWord('--chmod must be an octal number like 755, or symbols like u=rwX,go=rX')
  return clauses.flatMap((clause) => {
    const [, who = ''] = /^([ugoa]*)/.exec(clause)!
    return readActions(who === '' || who.includes('a') ? 'ugo' : who, clause.slice(who.length))
  })
}

/** In the syntax of a shell's chmod: each clause names whose bits it changes. */
export const showFileMode = (mode: FileMode): string =>
  typeof mode === 'number'
    ? mode.toString(8).padStart(4, '0')
    : mode.map(({ who, operator, bits }) => `${who}${operator}${bits}`).join(',')

const permissionOf = (bits: string, mode: number, isFolder: boolean): number => {
  const copied = shifts[bits]
  if (copied !== undefined) return (mode >> copied) & 7
  const mayRun = bits.includes('x') || (bits.includes('X') && (isFolder || (mode & 0o111) !== 0))
  return (bits.includes('r') ? 4 : 0) | (bits.includes('w') ? 2 : 0) | (mayRun ? 1 : 0)
}

const specialOf = (who: string, bits: string): number =>
  (bits.includes('s') ? (who.includes('u') ? 0o4000 : 0) | (who.includes('g') ? 0o2000 : 0) : 0) |
  (bits.includes('t') ? 0o1000 : 0)

const applyClause = (mode: number, { who, operator, bits }: ModeClause, isFolder: boolean): number => {
  const permission = permissionOf(bits, mode, isFolder)
  const places = [...new Set(who)].map((each) => shifts[each]!)
  const set = places.reduce((all, shift) => all | (permission << shift), specialOf(who, bits))
  if (operator === '+') return mode | set
  if (operator === '-') return mode & ~set
  const cleared = places.reduce((all, shift) => all | (7 << shift), specialOf(who, 's'))
  return (mode & ~cleared) | set
}

export const changeMode = (change: FileMode, mode: number, isFolder: boolean): number =>
  typeof change === 'number'
    ? change
    : change.reduce((all, clause) => applyClause(all, clause, isFolder), mode & 0o7777)
