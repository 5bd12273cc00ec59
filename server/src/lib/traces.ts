/**
 * Stack traces of the bundle (bin/bundle.ts) that point to the sources. Node's own --enable-source-maps costs 66 MB and
 * half of the start: here a map is read only when a trace is printed. A trace of the sources themselves is unchanged.
 */
import { readFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

interface Place {
  line: number
  column: number
}

interface SourceMap {
  sources: string[]
  mappings: string
}

const base64 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
const digits = Int8Array.from({ length: 128 }, (_, code) => base64.indexOf(String.fromCharCode(code)))
const [comma, semicolon] = [44, 59]

/** Calls back for each segment of these mappings: where it begins, and source, line and column, all counted from 0. */
const readSegments = (mappings: string, each: (line: number, column: number, to: number[]) => void): void => {
  let line = 0
  // Column in the bundle, source, line, column: each is stored as the difference to the one before.
  const at = [0, 0, 0, 0, 0]
  let [field, value, shift] = [0, 0, 0]
  for (let index = 0; index <= mappings.length; index++) {
    const code = index === mappings.length ? semicolon : mappings.charCodeAt(index)
    if (code === comma || code === semicolon) {
      if (field >= 4) each(line, at[0]!, at)
      field = 0
      if (code === semicolon) {
        line += 1
        at[0] = 0
      }
      continue
    }
    const digit = digits[code]!
    value += (digit & 31) << shift
    shift += 5
    if (digit >= 32) continue
    at[field]! += value & 1 ? -(value >> 1) : value >> 1
    field += 1
    value = 0
    shift = 0
  }
}

/** `path:line:column` of the source of each place, in one pass; undefined where it has none. */
export const sourcesOf = ({ sources, mappings }: SourceMap, places: readonly Place[]): (string | undefined)[] => {
  const found: (string | undefined)[] = places.map(() => undefined)
  const lines = new Set(places.map(({ line }) => line - 1))
  readSegments(mappings, (line, column, [, source = 0, sourceLine = 0, sourceColumn = 0]) => {
    if (!lines.has(line)) return
    for (const [index, place] of places.entries())
      if (place.line - 1 === line && column < place.column)
        found[index] = `${sources[source]}:${sourceLine + 1}:${sourceColumn + 1}`
  })
  return found
}

const readMap = (file: string): SourceMap | null => {
  try {
    const map = JSON.parse(readFileSync(`${file}.map`, 'utf8')) as SourceMap
    return { ...map, sources: map.sources.map((source) => resolve(dirname(file), source)) }
  } catch {
    return null
  }
}

const bundled = /(file:\/\/[^\s()]+\.[cm]js):(\d+):(\d+)/g

/** A trace with the places of sources instead of those in the bundle. */
export const nameSources = (trace: string): string => {
  const places = new Map<string, Map<string, Place>>()
  for (const [whole, url, line, column] of trace.matchAll(bundled)) {
    const ofFile = places.get(url!) ?? new Map<string, Place>()
    places.set(url!, ofFile.set(whole, { line: Number(line), column: Number(column) }))
  }
  const names = new Map<string, string>()
  for (const [url, wanted] of places) {
    const map = readMap(fileURLToPath(url))
    if (map === null) continue
    const found = sourcesOf(map, [...wanted.values()])
    for (const [index, whole] of [...wanted.keys()].entries()) names.set(whole, found[index] ?? whole)
  }
  return trace.replaceAll(bundled, (whole) => names.get(whole) ?? whole)
}

/** Also in the trace of uncaught errors, from now on in this thread. */
export const nameSourcesOfUncaught = (): void => {
  process.on('uncaughtExceptionMonitor', (error) => {
    if (error instanceof Error && error.stack !== undefined) error.stack = nameSources(error.stack)
  })
}
