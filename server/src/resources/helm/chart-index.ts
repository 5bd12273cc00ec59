/**
 * The index of a chart repository: names of charts and their versions. Reads only the form in which helm writes
 * indexes, block YAML by indentation, or JSON; everything but names and versions is skipped. Pure.
 */

export interface ChartVersions {
  chart_name: string
  versions: string[]
}

const maxCharts = 5000
const maxVersions = 2000

const indentOf = (line: string): number => line.length - line.trimStart().length

const unquote = (text: string): string => /^(['"])(.*)\1$/.exec(text)?.[2] ?? text

/** `name: value`, also after `- `; null for other lines. */
const pairIn = (text: string): { name: string; value: string } | null => {
  const [, name, value] = /^("[^"]*"|'[^']*'|[^\s#:'"-][^\s:]*):(?:\s+(.*))?$/.exec(text) ?? []
  return name === undefined
    ? null
    : { name: unquote(name), value: unquote((value ?? '').replace(/\s+#.*$/, '').trim()) }
}

const fromJson = (text: string): ChartVersions[] | null => {
  const { entries } = JSON.parse(text) as { entries?: unknown }
  if (typeof entries !== 'object' || entries === null) return null
  return Object.entries(entries).map(([chart_name, list]) => ({
    chart_name,
    versions: (Array.isArray(list) ? list : []).flatMap((item: unknown) => {
      const version = (item as { version?: unknown } | null)?.version
      return typeof version === 'string' ? [version] : []
    }),
  }))
}

const fromYaml = (text: string): ChartVersions[] | null => {
  const lines = text.split(/\r?\n/)
  const start = lines.findIndex((line) => /^entries:\s*(\{\}\s*)?(#.*)?$/.test(line))
  if (start < 0) return null
  const charts: ChartVersions[] = []
  let nameIndent: number | null = null
  let itemIndent: number | null = null
  for (const line of lines.slice(start + 1)) {
    const text = line.trim()
    if (text === '' || text.startsWith('#')) continue
    const indent = indentOf(line)
    const isItem = text.startsWith('- ')
    if (indent === 0 && !isItem) break
    nameIndent ??= indent
    if (indent === nameIndent && !isItem) {
      const pair = pairIn(text)
      if (pair === null || charts.length === maxCharts) break
      charts.push({ chart_name: pair.name, versions: [] })
      itemIndent = null
      continue
    }
    if (isItem) itemIndent ??= indent
    if (itemIndent === null) continue
    const own =
      isItem && indent === itemIndent ? text.slice(2).trimStart() : indent === itemIndent + 2 && !isItem ? text : null
    const pair = own === null ? null : pairIn(own)
    const versions = charts.at(-1)?.versions
    if (pair?.name === 'version' && versions !== undefined && versions.length < maxVersions) versions.push(pair.value)
  }
  return charts
}

/** Null for what is not an index. */
export const parseChartIndex = (text: string): ChartVersions[] | null => {
  try {
    return text.trimStart().startsWith('{') ? fromJson(text) : fromYaml(text)
  } catch {
    return null
  }
}
