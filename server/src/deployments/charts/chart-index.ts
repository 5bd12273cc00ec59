/**
 * The index of a chart repository: names of charts and their versions. Reads only the form in which helm writes
 * indexes, block YAML by indentation, or JSON; everything but names and versions is skipped. Nothing is left out
 * silently: an index with more than the limits is an error of its own. Runs in a thread (index-thread.ts). Pure.
 */
import { ForeignTextError } from '../../lib/foreign-text/foreign-text-error.ts'
import { readJson } from '../../lib/foreign-text/read-json.ts'

export interface ChartVersions {
  chart_name: string
  versions: string[]
}

const maxCharts = 5000
const maxVersions = 5000

const maxLines = 2_000_000
/** A tenth of a kilobyte of memory each; helm itself writes YAML, which is never parsed whole. */
const jsonBounds = { mostBytes: 64 << 20, mostValues: 300_000 }

/** Says which limit the index exceeds. */
export class ChartIndexTooLarge extends ForeignTextError {
  constructor(message: string) {
    super('too_large', message)
  }
}

function* linesOf(text: string): Generator<string> {
  let count = 0
  for (let from = 0; from <= text.length; ) {
    count += 1
    if (count > maxLines) throw new ChartIndexTooLarge(`has more than ${maxLines} lines`)
    const feed = text.indexOf('\n', from)
    const end = feed === -1 ? text.length : feed
    yield text.slice(from, text[end - 1] === '\r' && feed !== -1 && end > from ? end - 1 : end)
    from = end + 1
  }
}

/** For one more chart. */
const checkCharts = (count: number): void => {
  if (count >= maxCharts) throw new ChartIndexTooLarge(`lists more than ${maxCharts} charts`)
}

/** For one more version. */
const checkVersions = (chart: ChartVersions): void => {
  if (chart.versions.length >= maxVersions)
    throw new ChartIndexTooLarge(`lists more than ${maxVersions} versions of a chart`)
}

const indentOf = (line: string): number => line.length - line.trimStart().length

const unquote = (text: string): string => /^(['"])(.*)\1$/.exec(text)?.[2] ?? text

/** A comment begins at a number sign after a space. Linear in the text, as everything here. */
const withoutComment = (text: string): string => {
  let at = text.indexOf('#')
  while (at > 0 && !/\s/.test(text[at - 1]!)) at = text.indexOf('#', at + 1)
  return at > 0 ? text.slice(0, at) : text
}

/** `name: value`, also after `- `; null for other lines. */
const pairIn = (text: string): { name: string; value: string } | null => {
  const [begin, name] = /^("[^"]*"|'[^']*'|[^\s#:'"-][^\s:]*):(?=\s|$)/.exec(text) ?? []
  if (begin === undefined || name === undefined) return null
  return { name: unquote(name), value: unquote(withoutComment(text.slice(begin.length)).trim()) }
}

const fromJson = (text: string): ChartVersions[] | null => {
  const { entries } = readJson(text, jsonBounds) as { entries?: unknown }
  if (typeof entries !== 'object' || entries === null) return null
  const charts: ChartVersions[] = []
  for (const [chart_name, list] of Object.entries(entries)) {
    checkCharts(charts.length)
    const chart: ChartVersions = { chart_name, versions: [] }
    charts.push(chart)
    for (const item of Array.isArray(list) ? list : []) {
      const version = (item as { version?: unknown } | null)?.version
      if (typeof version !== 'string') continue
      checkVersions(chart)
      chart.versions.push(version)
    }
  }
  return charts
}

/** Skips to the line after the first one of this form; false if there is none. */
const skipTo = (lines: Iterator<string>, form: RegExp): boolean => {
  for (let next = lines.next(); next.done !== true; next = lines.next()) if (form.test(next.value)) return true
  return false
}

const fromYaml = (text: string): ChartVersions[] | null => {
  const lines = linesOf(text)
  if (!skipTo(lines, /^entries:\s*(\{\}\s*)?(#.*)?$/)) return null
  const charts: ChartVersions[] = []
  let nameIndent: number | null = null
  let itemIndent: number | null = null
  for (const line of lines) {
    const text = line.trim()
    if (text === '' || text.startsWith('#')) continue
    const indent = indentOf(line)
    const isItem = text.startsWith('- ')
    if (indent === 0 && !isItem) break
    nameIndent ??= indent
    if (indent === nameIndent && !isItem) {
      const pair = pairIn(text)
      if (pair === null) return null
      checkCharts(charts.length)
      charts.push({ chart_name: pair.name, versions: [] })
      itemIndent = null
      continue
    }
    if (isItem) itemIndent ??= indent
    if (itemIndent === null) continue
    const own =
      isItem && indent === itemIndent ? text.slice(2).trimStart() : indent === itemIndent + 2 && !isItem ? text : null
    const pair = own === null ? null : pairIn(own)
    const chart = charts.at(-1)
    if (pair?.name !== 'version' || chart === undefined) continue
    checkVersions(chart)
    chart.versions.push(pair.value)
  }
  return charts
}

/** Null for a text that is not an index; throws a `ForeignTextError` for one that exceeds a limit. */
export const parseChartIndex = (text: string): ChartVersions[] | null => {
  try {
    return text.trimStart().startsWith('{') ? fromJson(text) : fromYaml(text)
  } catch (error) {
    if (error instanceof ForeignTextError && error.code !== 'malformed') throw error
    return null
  }
}

export interface ChartPlace {
  /** As they are written: relative to the index, or anywhere. */
  urls: string[]
  /** Digest of the archive, 64 hex digits; null if the index has none. */
  digest: string | null
}

const maxUrls = 10
const longestUrl = 2048

const placeOf = (urls: readonly unknown[], digest: unknown): ChartPlace => ({
  urls: urls
    .filter((url) => typeof url === 'string')
    .filter((url) => url !== '' && url.length <= longestUrl)
    .slice(0, maxUrls),
  digest: typeof digest === 'string' ? (/^(?:sha256:)?([0-9a-f]{64})$/.exec(digest)?.[1] ?? null) : null,
})

const placeInJson = (text: string, chart: string, version: string): ChartPlace | null => {
  const { entries } = readJson(text, jsonBounds) as { entries?: Record<string, unknown> }
  const list = entries !== undefined && Object.hasOwn(entries, chart) ? entries[chart] : []
  const found = (Array.isArray(list) ? list : []).find((item) => item?.version === version)
  return found === undefined ? null : placeOf(Array.isArray(found.urls) ? found.urls : [], found.digest)
}

/** The lines of each version of one chart, without their indentation. */
const itemsOf = (text: string, chart: string): string[][] => {
  const items: string[][] = []
  const lines = linesOf(text)
  let nameIndent: number | null = null
  let itemIndent: number | null = null
  let isWanted = false
  if (!skipTo(lines, /^entries:/)) return []
  for (const line of lines) {
    const words = line.trim()
    if (words === '' || words.startsWith('#')) continue
    const [indent, isItem] = [indentOf(line), words.startsWith('- ')]
    if (indent === 0 && !isItem) break
    nameIndent ??= indent
    if (indent === nameIndent && !isItem) {
      isWanted = pairIn(words)?.name === chart
      itemIndent = null
      continue
    }
    if (!isWanted) continue
    if (isItem) itemIndent ??= indent
    if (itemIndent === null) continue
    if (isItem && indent === itemIndent) items.push([words.slice(2).trimStart()])
    else items.at(-1)?.push(line.slice(Math.min(indent, itemIndent + 2)))
  }
  return items
}

const placeInItem = (lines: readonly string[], version: string): ChartPlace | null => {
  const own = new Map<string, string>()
  const urls: string[] = []
  let inUrls = false
  for (const line of lines) {
    const words = line.trim()
    const isOwn = indentOf(line) === 0
    if (isOwn && !words.startsWith('- ')) {
      const pair = pairIn(words)
      inUrls = pair?.name === 'urls'
      if (pair !== null) own.set(pair.name, pair.value)
    } else if (inUrls && words.startsWith('- ')) urls.push(unquote(withoutComment(words.slice(2)).trim()))
  }
  return own.get('version') === version ? placeOf(urls, own.get('digest')) : null
}

/** Where an index says that one version of a chart is; null if it does not list it. Throws as `parseChartIndex`. */
export const findChart = (text: string, chart: string, version: string): ChartPlace | null => {
  try {
    if (text.trimStart().startsWith('{')) return placeInJson(text, chart, version)
  } catch (error) {
    if (error instanceof ForeignTextError && error.code !== 'malformed') throw error
    return null
  }
  for (const item of itemsOf(text, chart)) {
    const place = placeInItem(item, version)
    if (place !== null) return place
  }
  return null
}
