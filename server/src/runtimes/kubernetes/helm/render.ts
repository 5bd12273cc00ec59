/**
 * Renders a chart and reads its objects. Helm itself reads the YAML, so that exactly the objects are checked that helm
 * would create; afterwards it is JSON, and a chart of exactly these objects is installed: a chart that renders
 * something else the second time gains nothing.
 */
import { readJson } from '../../../lib/foreign-text/read-json.ts'
import { type ChartedObject, parseLines, readObjects, refuse, splitDocuments } from './charted.ts'
import type { HelmSession } from './tool.ts'

export interface ChartToRender {
  release: string
  namespace: string
  /** The archive of the chart with all its dependencies. */
  archive: Buffer
  /** Values files, with variables replaced; the last one takes precedence. */
  values: readonly string[]
  isUpgrade: boolean
  /** Version of the cluster: `v1.35.4`. */
  kubeVersion: string
  /** `apps/v1`, in addition to those that every cluster has. */
  apiVersions: readonly string[]
  signal?: AbortSignal
}

export interface RenderedChart {
  name: string
  version: string
  appVersion: string
  crds: ChartedObject[]
  objects: ChartedObject[]
}

const renderMs = 60_000
const longestRendered = 4 << 20

const convertTemplate = `{{ range $path, $_ := .Files.Glob "documents/*" }}
---
{{ dict "path" $path "content" ($.Files.Get $path | fromYaml) | toJson }}
{{ end }}`

const numbered = (index: number): string => String(index).padStart(5, '0')

interface Converted {
  path: string
  content: Record<string, unknown>
}

/** The documents as JSON, each a line. */
const convert = async (
  { write, run }: HelmSession,
  documents: readonly string[],
  signal?: AbortSignal,
): Promise<string[]> => {
  if (documents.length === 0) return []
  await write('convert/Chart.yaml', 'apiVersion: v2\nname: convert\nversion: 0.0.0\n')
  await write('convert/templates/all.yaml', convertTemplate)
  let folder = ''
  for (const [index, text] of documents.entries())
    folder = (await write(`convert/documents/${numbered(index)}.yaml`, text)).replace(/\/documents\/.*$/, '')
  const printed = await run(['template', 'convert', folder], {
    ...{ timeoutMs: renderMs, maxOutput: 3 * longestRendered },
    signal,
  })
  const found = (parseLines(printed, '{"') as Converted[]).sort((left, right) => (left.path < right.path ? -1 : 1))
  if (found.length !== documents.length) refuse('The chart makes YAML that cannot be read.')
  for (const { content } of found)
    if (typeof content.Error === 'string' && content.kind === undefined)
      refuse(`The chart makes YAML that cannot be read: ${content.Error.slice(0, 300)}`)
  return found.map(({ content }) => JSON.stringify(content))
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value.slice(0, 200) : '')

export const render = async (session: HelmSession, chart: ChartToRender): Promise<RenderedChart> => {
  const { release, namespace, values, signal } = chart
  const options = { timeoutMs: renderMs, maxOutput: longestRendered, signal }
  const archive = await session.write('chart.tgz', chart.archive)
  const files: string[] = []
  for (const [index, text] of values.entries()) files.push(await session.write(`values/${numbered(index)}.yaml`, text))
  const [described, crds] = [
    await session.run(['show', 'chart', archive], options),
    await session.run(['show', 'crds', archive], options),
  ]
  const rendered = await session.run(
    [
      ...['template', release, archive, '--namespace', namespace, '--skip-tests', '--skip-crds'],
      '--skip-schema-validation',
      ...['--kube-version', chart.kubeVersion, ...(chart.isUpgrade ? ['--is-upgrade'] : [])],
      ...chart.apiVersions.flatMap((each) => ['--api-versions', each]),
      ...files.flatMap((file) => ['--values', file]),
    ],
    options,
  )
  const [crdDocuments, documents] = [splitDocuments(crds), splitDocuments(rendered)]
  const [facts, ...lines] = await convert(session, [described, ...crdDocuments, ...documents], signal)
  const { name, version, appVersion } = readJson(facts!) as Record<string, unknown>
  return {
    ...{ name: textOf(name), version: textOf(version), appVersion: textOf(appVersion) },
    crds: readObjects(lines.slice(0, crdDocuments.length).join('\n')),
    objects: readObjects(lines.slice(crdDocuments.length).join('\n')),
  }
}

const fixedTemplate = `{{ range $path, $_ := .Files.Glob "objects/*" }}
---
{{ $.Files.Get $path }}
{{ end }}`

/** Writes a chart that makes exactly what was rendered; returns its folder. */
export const writeFixedChart = async (
  { write }: HelmSession,
  { name, version, appVersion, crds, objects }: RenderedChart,
): Promise<string> => {
  const facts = { apiVersion: 'v2', name, version, ...(appVersion === '' ? {} : { appVersion }) }
  const path = await write('fixed/Chart.yaml', JSON.stringify(facts))
  await write('fixed/templates/all.yaml', fixedTemplate)
  for (const [index, each] of objects.entries())
    await write(`fixed/objects/${numbered(index)}.json`, JSON.stringify(each))
  for (const [index, each] of crds.entries()) await write(`fixed/crds/${numbered(index)}.yaml`, JSON.stringify(each))
  return path.replace(/\/Chart\.yaml$/, '')
}
