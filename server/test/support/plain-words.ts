/**
 * The phrases that read as translated, and where they are looked for: texts of the product, comments, titles, pages.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { commentsOf, type SourceFile, shownTextsOf, testTitlesOf } from './source-code.ts'

type Phrase = [pattern: RegExp, better: string]

/** What reads as translated, and what a native would write. Few, so that a hit is nearly always right. */
const phrases: Phrase[] = [
  [/(?<!\bthere )\b(?:is|are|was|were) no (?!longer\b|more\b)/i, 'is not a …'],
  [/\bthere twice\b|\btwice here\b/i, 'is a duplicate'],
  [/\b(?:is|are) not there\b/i, 'does not exist'],
  [/\bstands? (?:in|at|here|there)\b|\bas (?:it|they) stands?\b/i, 'is in'],
  [/\bholds? no\b/i, 'has no'],
  [/, for (?:it|there|they) (?:is|are|has|have|needs?|runs?)\b/i, 'because'],
  [/\bfrom the [a-z]+(?: [a-z]+)? on\b/i, 'starting with'],
  [/\bis tried again\b/i, 'retrying'],
  [/\bby its name\b/i, 'by name'],
  [/\bnobody['’]s\b/i, 'belongs to nobody'],
  [/\b(?:tells?|told) of\b/i, 'lists, reports'],
  [/\bcannot be had\b/i, 'is not available'],
  [/\bnot admit\b/i, 'rejects'],
  [
    /\b(?:cancell(?:ed|ing)|honour|neighbour|behaviour|catalogue|[a-z]+(?:ali|roni)s(?:e|ed|ing)\b)/i,
    'American spelling',
  ],
]

/** Habits of our own comments, titles and pages, beside those. */
const habits: Phrase[] = [
  [/\b(?:tells?|told)\b(?! (?:of|you|people)\b)(?!(?: [\w'-]+){0,4} apart\b)/i, 'report, return, notify, show, send'],
  [/\b(?:whoever|nobody|somebody)\b(?!['’]s\b)/i, 'name the actor: the client, the operator, no other replica'],
  [/\bwhat of\b/i, 'the part of … that'],
  [/(?:^|[.:] )Of (?:an?|the)\b/, 'begin with the noun'],
  [/\bgo(?:es)? on\b/i, 'continue, resume, keep'],
]

interface Hit {
  found: string
  better: string
  at: number
}

const hitsIn = (list: Phrase[], text: string): Hit[] =>
  list.flatMap(([pattern, better]) =>
    [...text.matchAll(new RegExp(pattern, `g${pattern.flags}`))].map(({ 0: found, index: at }) => ({
      found: found.trim(),
      better,
      at,
    })),
  )

/** What is strange in a text that users read. */
export const strangeIn = (path: string, text: string): string[] =>
  hitsIn(phrases, text).map(({ found, better }) => `${path}: "${found}" (${better}) in: ${text.slice(0, 120)}`)

const withoutCode = (text: string): string =>
  text
    .replaceAll(/`[^`]*`/g, '`…`')
    .replaceAll(/\s+/g, ' ')
    .trim()

/** What is strange in a comment, a title or a paragraph. Code in backticks is not read. */
export const strangeInProse = (path: string, text: string): string[] => {
  const prose = withoutCode(text)
  return hitsIn([...phrases, ...habits], prose).map(
    ({ found, better, at }) => `${path}: "${found}" (${better}) in: ${prose.slice(Math.max(0, at - 60), at + 60)}`,
  )
}

const shellComments = (text: string): string[] =>
  (text.match(/(?:^[ \t]*#(?!!).*\n?)+/gm) ?? []).map((found) => found.replaceAll(/^[ \t]*# ?/gm, ''))

const paragraphs = (text: string): string[] =>
  text
    .replaceAll(/^```[\s\S]*?^```/gm, '')
    .split(/\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) )/)
    .map((found) => found.replace(/^\s*(?:[-*#]+|\d+\.) /, ''))

/** The comments of a file, the titles of its tests, its paragraphs; of the console also what is shown. */
export const proseOf = ({ path, text }: SourceFile): string[] => {
  if (path.endsWith('.md')) return paragraphs(text)
  if (path.endsWith('.json')) return [text]
  if (!/\.[a-z]+$/.test(path) || path.endsWith('.sh')) return shellComments(text)
  const comments = commentsOf(text)
  if (path.startsWith('console/src/')) return [...comments, ...shownTextsOf(text)]
  return path.endsWith('.test.ts') || path.startsWith('server/test/') ? [...comments, ...testTitlesOf(text)] : comments
}

/** Folders with one number each; those of server/src have one for each of their top folders. */
const folders: [folder: string, names: RegExp][] = [
  ['server/src', /\.ts$/],
  ['server/test', /\.ts$/],
  ['console/src', /(?<!\.d)\.(?:tsx?|css)$|templates\/.*\.json$/],
  ['bin', /^[^.]*(?:\.ts|\.sh)?$/],
  ['bench', /\.ts$/],
  ['docs/decisions', /\.md$/],
  ['docs/guides', /\.md$/],
]

const budgetedBy = (folder: string, path: string): string =>
  folder === 'server/src' ? path.split('/').slice(0, -1).slice(0, 3).join('/') : folder

const filesBelow = (root: string, folder: string): string[] =>
  readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.parentPath.includes('node_modules'))
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length))
    .sort()

/** For each folder with a number, what is strange in it. */
export const strangeByFolder = (root: string): Map<string, string[]> => {
  const found = new Map<string, string[]>()
  for (const [folder, names] of folders) {
    for (const path of filesBelow(root, folder).filter((path) => names.test(path))) {
      const file = { path, text: readFileSync(join(root, path), 'utf8') }
      const key = budgetedBy(folder, path)
      found.set(key, (found.get(key) ?? []).concat(proseOf(file).flatMap((text) => strangeInProse(path, text))))
    }
  }
  return found
}

export type Budgets = Record<string, number>

/** What is wrong with the numbers: they may only fall, and fall as soon as they can. */
export const budgetProblems = (counts: Budgets, budgets: Budgets): string[] =>
  [...new Set([...Object.keys(counts), ...Object.keys(budgets)])].sort().flatMap((folder) => {
    const [count, budget] = [counts[folder] ?? 0, budgets[folder] ?? 0]
    if (count === 0 && folder in budgets && !(folder in counts)) return [`${folder} has no files: remove its budget`]
    if (count > budget) return [`${folder} has ${count} strange phrases, at most ${budget} are allowed: rewrite yours`]
    return count < budget ? [`${folder}: lower the budget to ${count} (npm run fix does)`] : []
  })

/** The numbers after what was rewritten: never higher than before, nothing for folders that are gone. */
export const lowered = (counts: Budgets, budgets: Budgets): Budgets =>
  Object.fromEntries(
    Object.keys(counts)
      .sort()
      .map((folder) => [folder, Math.min(counts[folder] ?? 0, budgets[folder] ?? 0)]),
  )
