/**
 * Changes the context for one COPY with options that the engine does not support: other modes, files left out, files
 * of its own, folders kept (`--parents`). The engine's own COPY then copies the result. Pure.
 */
import { posix } from 'node:path'
import { refusePreparation } from '../preparation-limits.ts'
import type { FileMode } from './file-modes.ts'
import { parseIgnoreFile } from './ignore-file.ts'

export interface ContextShape {
  sources: string[]
  /** Patterns for excluded files, relative to each source. */
  excludes: string[]
  /** The context contains only the files that match the sources, with their folders, below `ownFolder`. */
  parents: boolean
  /** The change of the mode of every file and folder; null: none. */
  mode: FileMode | null
  /** Files of our own, below `ownFolder`. */
  files: { name: string; text: string }[]
  hasNothing: boolean
}

/** The folder in a shaped context for files that are not from the repository. */
export const ownFolder = '.slipway.copy'
/** An empty folder: a source that always matches and copies nothing. */
export const nothingFolder = '.slipway.nothing'

const maxPatterns = 100
/** No pattern here may begin a comment or an exception of an ignore file. */
const fits = /^[^#!\n\r\0][^\n\r\0]{0,500}$/

const partsOf = (path: string): string[] => path.split('/').filter((part) => part !== '' && part !== '.')

const compile = (pattern: string, comparisons: number): ((path: string) => boolean) => {
  if (!fits.test(pattern))
    throw refusePreparation(`COPY has the pattern ${JSON.stringify(pattern.slice(0, 80))}, which cannot be read.`)
  return parseIgnoreFile(pattern, comparisons)
}

interface Source {
  /** Path of an entry relative to this source; null if it does not belong to it. */
  within(parts: readonly string[]): string[] | null
  matches(path: string): boolean
  /** The number of folders before the part that `--parents` keeps. */
  dropped: number
}

const readSource = (written: string, comparisons: number): Source => {
  const pivot = written.indexOf('/./', 1)
  const parts = partsOf(posix.join('/', written))
  const dropped = pivot === -1 ? 0 : partsOf(posix.join('/', written.slice(0, pivot))).length
  if (pivot !== -1 && written.slice(0, pivot).includes('**'))
    throw refusePreparation('COPY --parents cannot have ** in front of /./')
  const isMatch = parts.length === 0 ? () => true : compile(parts.join('/'), comparisons)
  return {
    within: (path) =>
      path.length >= parts.length && isMatch(path.slice(0, parts.length).join('/')) ? path.slice(parts.length) : null,
    matches: isMatch,
    dropped,
  }
}

/** The new name of an entry; null for an excluded one. */
type Rename = (path: string, isFolder: boolean) => string | null

export const createRename = ({ sources, excludes, parents }: ContextShape): Rename => {
  if (sources.length + excludes.length > maxPatterns)
    throw refusePreparation(`COPY has more than ${maxPatterns} sources and patterns.`)
  const comparisons = Math.floor(100_000_000 / Math.max(1, sources.length + excludes.length))
  const read = sources.map((source) => readSource(source, comparisons))
  const rules = excludes.map((pattern) => compile(pattern, comparisons))
  const isExcluded = (path: string): boolean => rules.some((rule) => rule(path))

  const isLeftOut = (parts: readonly string[], isFolder: boolean): boolean =>
    rules.length > 0 &&
    read.some(({ within }) => {
      const inside = within(parts)
      if (inside === null) return false
      // A file that is a source itself is matched by its own name; a folder is not excluded from itself.
      if (inside.length === 0) return !isFolder && isExcluded(parts.at(-1)!)
      return isExcluded(inside.join('/'))
    })

  return (path, isFolder) => {
    const parts = partsOf(path)
    if (isLeftOut(parts, isFolder)) return null
    if (!parents) return path
    const source = read.find(({ matches }) => matches(path))
    if (source === undefined || parts.length <= source.dropped) return null
    return [ownFolder, ...parts.slice(source.dropped)].join('/')
  }
}
