/**
 * What helm does with a cluster in memory, as far as this server asks it: charts whose templates are JSON, with values
 * in JSON in place of `{{name}}`. An object with the annotation `fake/fails` fails its upgrade.
 */
import { createGunzip } from 'node:zlib'
import { extract } from 'tar-stream'
import { DeploymentError } from '../../../src/lib/errors.ts'
import type { HelmSession, HelmTool } from '../../../src/runtimes/kubernetes/helm/tool.ts'
import { chartArchive } from '../../kubernetes/cluster/chart.ts'
import type { Json } from '../api.ts'
import type { MemoryCluster } from './api-server.ts'

interface Revision {
  revision: number
  status: string
  chart: string
  description: string
  objects: Json[]
}

export interface FakeHelm {
  tool: HelmTool
  /** Verbs of what was run, `upgrade`, …, without those that only read. */
  ran: string[]
  /** The revisions of a release, the newest first. */
  revisions(release: string): Revision[]
  /** Called before an upgrade ends, with what ends helm; what it throws kills the run there. */
  during: (signal: AbortSignal) => Promise<void>
}

const failed = (message: string): never => {
  throw new DeploymentError('helm_failed', `Helm failed: ${message}`)
}

const filesOf = async (archive: Buffer): Promise<Map<string, string>> => {
  const files = new Map<string, string>()
  const unpacked = createGunzip().end(archive).pipe(extract())
  for await (const entry of unpacked) {
    const chunks: Buffer[] = []
    for await (const chunk of entry) chunks.push(chunk as Buffer)
    files.set(entry.header.name.split('/').slice(1).join('/'), Buffer.concat(chunks).toString())
  }
  return files
}

const isHook = ({ metadata }: Json): boolean => metadata.annotations?.['helm.sh/hook'] !== undefined

const optionOf = (args: readonly string[], name: string): string => args[args.indexOf(name) + 1] ?? ''

export const createFakeHelm = (cluster: MemoryCluster): FakeHelm => {
  const releases = new Map<string, Revision[]>()
  const { store } = cluster
  const kept = (release: string): Revision[] => releases.get(release) ?? []

  const note = (release: string, namespace: string, next: Revision): void => {
    releases.set(release, [next, ...kept(release)])
    store.put({
      kind: 'Secret',
      metadata: {
        name: `sh.helm.release.v1.${release}.v${next.revision}`,
        namespace,
        labels: { owner: 'helm', name: release },
      },
    } as never)
  }
  const apply = (namespace: string, objects: readonly Json[], before: readonly Json[]): void => {
    const named = new Set(objects.map(({ kind, metadata }) => `${kind} ${metadata.name}`))
    for (const { kind, metadata } of before)
      if (!named.has(`${kind} ${metadata.name}`)) drop(kind, namespace, metadata.name)
    for (const object of objects) store.apply({ ...object, metadata: { ...object.metadata, namespace } } as never)
  }
  const drop = (kind: string, namespace: string, name: string): void => {
    const found = store.find(kind, namespace, name)
    if (found === undefined) return
    if (kind === 'Deployment') store.merge(found, { metadata: { deletionTimestamp: new Date().toISOString() } })
    else store.drop(found)
  }
  const live = (release: string): Revision | undefined => kept(release).find(({ status }) => status === 'deployed')

  const upgrade = async (
    args: readonly string[],
    files: ReadonlyMap<string, string | Buffer>,
    signal: AbortSignal,
  ): Promise<string> => {
    const [, , release = '', folder = ''] = args
    const namespace = optionOf(args, '--namespace')
    const objects = [...files]
      .filter(([path]) => path.startsWith(`${folder}/objects/`))
      .map(([, text]) => JSON.parse(String(text)) as Json)
    const facts = JSON.parse(String(files.get(`${folder}/Chart.yaml`))) as Json
    const before = live(release)
    const revision = (kept(release)[0]?.revision ?? 0) + 1
    const next: Revision = {
      ...{ revision, status: 'pending-upgrade', chart: `${facts.name}-${facts.version}`, description: '' },
      objects,
    }
    note(release, namespace, next)
    apply(
      namespace,
      objects.filter((each) => !isHook(each)),
      before?.objects ?? [],
    )
    await fake.during(signal)
    if (objects.some(({ metadata }) => metadata.annotations?.['fake/fails'] !== undefined)) {
      next.status = 'failed'
      if (before === undefined) uninstall(release, namespace)
      else back(release, namespace, before)
      return failed('context deadline exceeded')
    }
    if (before !== undefined) before.status = 'superseded'
    next.status = 'deployed'
    return ''
  }
  const back = (release: string, namespace: string, to: Revision): void => {
    const [newest] = kept(release)
    apply(
      namespace,
      to.objects.filter((each) => !isHook(each)),
      newest!.objects,
    )
    if (newest!.status.startsWith('pending')) newest!.status = 'failed'
    to.status = 'superseded'
    note(release, namespace, {
      ...to,
      revision: newest!.revision + 1,
      status: 'deployed',
      description: `Rollback to ${to.revision}`,
    })
  }
  const uninstall = (release: string, namespace: string): void => {
    for (const { revision, objects } of kept(release)) {
      for (const { kind, metadata } of objects) drop(kind, namespace, metadata.name)
      drop('Secret', namespace, `sh.helm.release.v1.${release}.v${revision}`)
    }
    releases.delete(release)
  }
  const template = async (args: readonly string[], files: ReadonlyMap<string, string | Buffer>): Promise<string> => {
    const [, name, place = ''] = args
    if (name === 'convert')
      return [...files]
        .filter(([path]) => path.startsWith(`${place}/documents/`))
        .map(([path, text]) => JSON.stringify({ path, content: JSON.parse(String(text)) }))
        .join('\n')
    const values: Json = {}
    for (const [at, word] of args.entries())
      if (word === '--values') Object.assign(values, JSON.parse(String(files.get(args[at + 1]!))))
    const chart = await filesOf(files.get(place) as Buffer)
    return [...chart]
      .filter(([path]) => path.startsWith('templates/'))
      .map(([, text]) => `---\n${text.replace(/\{\{(\w+)\}\}/g, (_, key: string) => String(values[key] ?? ''))}\n`)
      .join('')
  }

  const run = async (
    args: readonly string[],
    files: ReadonlyMap<string, string | Buffer>,
    signal: AbortSignal,
  ): Promise<string> => {
    const [verb = '', first = '', second = ''] = args
    const namespace = optionOf(args, '--namespace')
    if (!['show', 'template', 'history', 'get'].includes(verb)) fake.ran.push(verb)
    if (verb === 'show') return first === 'crds' ? '' : (await filesOf(files.get(second) as Buffer)).get('Chart.yaml')!
    if (verb === 'template') return template(args, files)
    if (verb === 'upgrade') return upgrade(args, files, signal)
    if (verb === 'history') return kept(first).length === 0 ? failed('release: not found') : JSON.stringify(kept(first))
    if (verb === 'get')
      return kept(second)[0]!
        .objects.filter((each) => !isHook(each))
        .map((each) => JSON.stringify(each))
        .join('\n')
    if (verb === 'uninstall') uninstall(first, namespace)
    if (verb === 'rollback') back(first, namespace, kept(first).find(({ revision }) => revision === Number(second))!)
    return ''
  }

  const fake: FakeHelm = {
    ran: [],
    revisions: kept,
    during: async () => {},
    tool: {
      version: async () => 'v3.20.0',
      use(work) {
        const files = new Map<string, string | Buffer>()
        const session: HelmSession = {
          isFourth: false,
          async write(name, content) {
            files.set(`/${name}`, content)
            return `/${name}`
          },
          run: (args, { signal = new AbortController().signal }) => run(args, files, signal),
        }
        return work(session)
      },
    },
  }
  return fake
}

/** A chart for it: a Deployment that uses an image, a ConfigMap with a greeting, and a Job before each revision. */
export const fakeChart = (version: string, more: Record<string, string> = {}): Promise<Buffer> => {
  const meta = (name: string, annotations: Json = {}) => ({ name, annotations })
  const container = { name: 'main', image: 'shop:1' }
  const objects: Json[] = [
    { apiVersion: 'v1', kind: 'ConfigMap', metadata: meta('shop'), data: { greeting: '{{greeting}}', version } },
    {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: meta('shop'),
      spec: {
        replicas: 2,
        selector: { matchLabels: { app: 'shop' } },
        template: { metadata: { labels: { app: 'shop' } }, spec: { containers: [container] } },
      },
    },
    {
      apiVersion: 'batch/v1',
      kind: 'Job',
      metadata: meta('prepare', { 'helm.sh/hook': 'pre-install,pre-upgrade' }),
      spec: { template: { spec: { containers: [container] } } },
    },
  ]
  return chartArchive('shop', {
    'Chart.yaml': JSON.stringify({ apiVersion: 'v2', name: 'shop', version }),
    'values.yaml': '{"greeting":"hello"}\n',
    ...Object.fromEntries(objects.map((each, index) => [`templates/${index}.json`, JSON.stringify(each)])),
    ...more,
  })
}
