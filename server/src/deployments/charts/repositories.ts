/**
 * Chart repositories: their charts, and the archive of one version of a chart, by HTTP or from a registry (OCI).
 * Promises that a login is sent only to the repository itself, and only over https or inside this machine's network;
 * that every hop passes the policy for outgoing requests; that an archive has the expected digest.
 */
import { createHash } from 'node:crypto'
import { createRegistryClient, RegistryError } from '../../lib/docker/docker-registry.ts'
import {
  createRegistrySession,
  type RegistryLogin,
  type RegistrySession,
  readAll,
  readObject,
  refuseStatus,
} from '../../lib/docker/registry-session.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { type Outbound, OutboundFailed, OutboundRefused, type OutboundResponse } from '../../lib/net/outbound.ts'
import { isPrivateHost } from '../../lib/net/private-host.ts'
import { isRateLimited, untilWhen } from '../../lib/net/rate-limit.ts'
import { isRedirect, redirectTarget } from '../../lib/net/redirects.ts'
import { Secret } from '../../lib/secret.ts'
import type { Queryable } from '../../store/database.ts'
import type { Sealer } from '../../store/keys/seal.ts'
import { loginOf, openLogin } from '../credentials/registry-credentials.ts'
import { maxArchiveBytes } from './archive.ts'
import type { ChartPlace, ChartVersions } from './chart-index.ts'
import { findInIndex, listIndex, tooLargeIndex } from './read-index.ts'

export interface ChartRepository {
  owner: string
  /** Whether it is a registry (OCI). */
  isRegistry: boolean
  /** `https:` also for a registry. */
  url: URL
  login: RegistryLogin | null
}

/** All reject with a `DeploymentError`: `repository_unreachable`, `repository_denied`, `repository_answer`, `repository_too_large`, `chart_missing`. */
export interface ChartRepositoryClient {
  /** The charts in its index; for a registry the versions of the named chart, because it does not list its charts. */
  list(chart: string | undefined): Promise<ChartVersions[]>
  /** The archive, as it was sent. */
  fetch(chart: string, version: string): Promise<Buffer>
}

/** Null when it was deleted. Rejects with a `DeploymentError` for a login that this server cannot make. */
export const readChartRepository = async (
  db: Queryable,
  sealer: Sealer,
  organizationId: string,
  repositoryId: string,
): Promise<ChartRepository | null> => {
  const [row] = await db.query<{
    id: string
    kind: string
    url: string
    config: Record<string, unknown>
    sealed: Record<string, string>
  }>(
    `select id, spec ->> 'kind' as kind, coalesce(spec ->> 'url', '') as url, coalesce(spec -> 'config', '{}') as config,
       coalesce(sealed, '{}') as sealed
     from node where id = $1 and organization_id = $2 and kind = 'helm_repository'`,
    [repositoryId, organizationId],
  )
  if (row === undefined) return null
  const isRegistry = row.kind !== 'HTTPS'
  const url = row.url.replace(/^oci:/, 'https:')
  // As container registries of the same name log in.
  const kind = row.kind.replace(/^OCI_/, '').replace(/^PUBLIC_ECR$/, 'GENERIC_CR')
  const login = loginOf(await openLogin(sealer, organizationId, { ...row, kind, url }))
  return { owner: organizationId, isRegistry, url: new URL(url), login }
}

/** Large public repositories have indexes of 20 MB. */
const maxIndexBytes = 32 << 20
const indexMs = 60_000
const maxManifestBytes = 1 << 20
const maxRedirects = 5
const manifestType = 'application/vnd.oci.image.manifest.v1+json'
const chartType = 'application/vnd.cncf.helm.chart.content.v1.tar+gzip'

type Answer = Pick<OutboundResponse, 'status' | 'headers'>

const answered = (what: string, { status, headers }: Answer, hasLogin: boolean): DeploymentError => {
  if (isRateLimited(status, headers)) {
    const until = untilWhen(headers, Date.now())
    const message = `The repository has received too many requests and refuses more${until} (status ${status}).`
    return new DeploymentError('repository_unreachable', message)
  }
  if (status === 401 || status === 403)
    return new DeploymentError(
      'repository_denied',
      hasLogin
        ? 'The repository refused the login: check its user name and password.'
        : 'The repository requires a login: give it a user name and password.',
    )
  return new DeploymentError('repository_answer', `The repository answered ${what} with status ${status}.`)
}

const failed = (code: string, message: string): DeploymentError => new DeploymentError(code, message)

const missingChart = (chart: string, version: string): DeploymentError =>
  failed('chart_missing', `The repository has no chart ${chart} in version ${version}: check its name and version.`)

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')

const explained = (error: unknown): unknown => {
  if (error instanceof RegistryError && error.code !== 'missing')
    return failed(error.code === 'denied' ? 'repository_denied' : 'repository_answer', error.message)
  if (error instanceof OutboundRefused || error instanceof OutboundFailed)
    return failed('repository_unreachable', `The repository cannot be reached: ${error.message}.`)
  return error
}

const createHttpClient = (outbound: Outbound, { owner, url: base, login }: ChartRepository, signal: AbortSignal) => {
  const folder = new URL(`${base.href.replace(/\/+$/, '')}/`)

  const authorization = async (target: URL): Promise<Record<string, string>> => {
    if (login === null || target.origin !== folder.origin) return {}
    if (target.protocol === 'http:' && !(await isPrivateHost(outbound, target)))
      throw failed('repository_denied', 'A password cannot be sent over plain http: use an https URL.')
    const { username, password } = login.reveal()
    return { authorization: `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}` }
  }

  const fetchIndex = async (): Promise<Buffer> => {
    const at = new URL('index.yaml', folder)
    const answer = await outbound.open({
      method: 'GET',
      url: at,
      headers: { accept: 'application/yaml, text/yaml, */*', ...(await authorization(at)) },
      maxBytes: maxIndexBytes,
      signal: AbortSignal.any([signal, AbortSignal.timeout(indexMs)]),
    })
    if (answer.status === 200)
      return readAll(answer).catch((error: unknown) => {
        const isTooLarge = error instanceof OutboundFailed && error.code === 'too_large'
        throw isTooLarge ? tooLargeIndex('is larger than 32 MiB') : error
      })
    answer.body.destroy()
    const error = answered('its index', answer, login !== null)
    if (error.code !== 'repository_answer') throw error
    throw failed(error.code, `${error.message} Check its URL, which must be the folder of index.yaml.`)
  }

  /** From https it may only lead to https; a login goes to the repository alone. */
  const download = async (first: URL): Promise<Buffer> => {
    let target = first
    for (let hops = 0; ; hops += 1) {
      const answer = await outbound.open({
        method: 'GET',
        url: target,
        headers: await authorization(target),
        maxBytes: maxArchiveBytes,
        signal,
      })
      if (answer.status === 200) return readAll(answer)
      answer.body.destroy()
      if (!isRedirect(answer.status))
        throw answered('the chart', answer, target.origin === folder.origin && login !== null)
      const next = redirectTarget(target, answer.headers.location)
      if (next === null || hops === maxRedirects)
        throw failed('repository_answer', 'The repository redirects to an address that is not allowed.')
      target = next
    }
  }

  const urlIn = ({ urls }: ChartPlace): URL => {
    for (const each of urls) {
      const url = URL.parse(each, folder.href)
      if (url !== null && (url.protocol === 'https:' || url.protocol === folder.protocol)) return url
    }
    throw failed('repository_answer', 'The index of the repository names no address of this chart that can be used.')
  }

  return {
    async list(chart: string | undefined): Promise<ChartVersions[]> {
      const charts = await listIndex(owner, fetchIndex, chart, signal)
      if (charts === null) throw failed('repository_answer', 'The repository has no index of charts at index.yaml.')
      return charts
    },
    async fetch(chart: string, version: string): Promise<Buffer> {
      const place = await findInIndex(owner, fetchIndex, { chart, version }, signal)
      if (place === null) throw missingChart(chart, version)
      const archive = await download(urlIn(place))
      if (place.digest !== null && sha256(archive) !== place.digest)
        throw failed('chart_refused', 'The archive of the chart is not the one of its digest in the index.')
      return archive
    },
  }
}

interface Layer {
  mediaType?: unknown
  digest?: unknown
  size?: unknown
}

const readWhole = async (
  session: RegistrySession,
  path: string,
  options: { maxBytes: number; headers?: Record<string, string> },
): Promise<Buffer> => {
  const answer = await session.open('GET', path, options)
  const body = await readAll(answer)
  refuseStatus(answer)
  return body
}

const layerOf = async (manifest: Buffer, owner: string): Promise<{ digest: string; size: number }> => {
  const { layers } = await readObject(manifest, owner)
  const found = (Array.isArray(layers) ? (layers as (Layer | null)[]) : []).find(
    (each) => each?.mediaType === chartType,
  )
  const { digest, size } = found ?? {}
  if (typeof digest !== 'string' || !/^sha256:[0-9a-f]{64}$/.test(digest))
    throw failed('repository_answer', 'The content of the registry under this name and version is not a Helm chart.')
  if (typeof size !== 'number' || size > maxArchiveBytes)
    throw failed(
      'chart_refused',
      `The chart is larger than ${maxArchiveBytes >> 20} MiB: leave out what it does not need.`,
    )
  return { digest, size }
}

const createOciClient = (outbound: Outbound, { owner, url, login }: ChartRepository, signal: AbortSignal) => {
  const nameOf = (chart: string): string =>
    [...url.pathname.split('/'), ...chart.split('/')].filter((each) => each !== '').join('/')
  return {
    async list(chart: string | undefined): Promise<ChartVersions[]> {
      if (chart === undefined)
        throw failed(
          'chart_name_needed',
          'A registry (OCI) does not list its charts: send `chartName` to read the versions of one.',
        )
      const known = login?.reveal()
      const access = {
        url: url.href,
        username: known?.username ?? null,
        password: known === undefined ? null : new Secret(known.password),
      }
      const client = createRegistryClient(outbound, access, signal)
      return [{ chart_name: chart, versions: await client.tags(nameOf(chart)) }]
    },
    async fetch(chart: string, version: string): Promise<Buffer> {
      const session = createRegistrySession(outbound, { url, login }, signal)
      const name = nameOf(chart).split('/').map(encodeURIComponent).join('/')
      try {
        // A tag cannot have a plus sign: helm pushes an underscore in its place.
        const tag = encodeURIComponent(version.replaceAll('+', '_'))
        const manifest = await readWhole(session, `/v2/${name}/manifests/${tag}`, {
          maxBytes: maxManifestBytes,
          headers: { accept: manifestType },
        })
        const { digest } = await layerOf(manifest, owner)
        const archive = await readWhole(session, `/v2/${name}/blobs/${digest}`, { maxBytes: maxArchiveBytes })
        if (`sha256:${sha256(archive)}` !== digest)
          throw failed('chart_refused', 'The registry sent an archive that is not the one of its digest.')
        return archive
      } catch (error) {
        if (error instanceof RegistryError && error.code === 'missing') throw missingChart(chart, version)
        throw error
      }
    },
  }
}

/** `signal` aborts all requests. */
export const createChartRepositoryClient = (
  outbound: Outbound,
  repository: ChartRepository,
  signal: AbortSignal,
): ChartRepositoryClient => {
  const client = (repository.isRegistry ? createOciClient : createHttpClient)(outbound, repository, signal)
  const told = async <T>(work: Promise<T>): Promise<T> => {
    try {
      return await work
    } catch (error) {
      throw explained(error)
    }
  }
  return {
    list: (chart) => told(client.list(chart)),
    fetch: (chart, version) => told(client.fetch(chart, version)),
  }
}
