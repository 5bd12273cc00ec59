/** The comment on a pull request: its preview, the preview's addresses, or why there is none. */
import type { Parts } from '../../api/parts.ts'
import { oneLine } from '../../deployments/git-hosts/answers.ts'
import { openGitHost } from '../../deployments/git-hosts/git-host.ts'
import { type Preview, readSource } from './rows.ts'

/** The marker by which the comment is found again. */
const markOf = ({ id }: Preview): string => `<!-- slipway preview ${id} -->`

/**
 * Mentions and addresses are found in the finished text, where nothing is escaped any more: this separates their
 * parts.
 */
const apart = '\u200b'

/** For a row's reason, which the list shows whole (list.ts). */
const mostReason = 500

/** Names are arbitrary: they must not look like any other part of the comment. */
export const plain = (text: string, most = 100): string =>
  oneLine(text, most)
    .replaceAll(/[\\`*_{}[\]()<>#|@!~&]/g, '\\$&')
    .replaceAll(/[@#!~&]|:(?=\/\/)|www(?=\.)/gi, `$&${apart}`)

interface Shown {
  name: string
  state: string
  host: string | null
  clusterId: string
}

const words: Record<string, string> = {
  BUILD_ERROR: 'could not be built',
  DEPLOYMENT_ERROR: 'could not be deployed',
  DEPLOYED: 'deployed',
  RESTARTED: 'deployed',
  STOPPED: 'stopped',
  CANCELED: 'canceled',
  READY: 'not deployed',
}

const rowOf = async (parts: Parts, { name, state, host, clusterId }: Shown): Promise<string> => {
  const address = host === null ? null : (await parts.clusters.of(clusterId)).ingress.url(host)
  return `| ${plain(name)} | ${words[state] ?? 'under way'} | ${address ?? ''} |`
}

const tableOf = async (parts: Parts, environmentId: string): Promise<string[]> => {
  const services = await parts.database.query<Shown>(
    `select n.name, s.state, s.cluster_id as "clusterId", (select r.host from route r where r.service_id = n.id
       order by r.custom_domain_id is null, r.is_default desc, r.host limit 1) as host
     from node n join service_state s on s.service_id = n.id where n.parent_id = $1 order by n.created_at, n.id limit 50`,
    [environmentId],
  )
  const rows: string[] = []
  for (const service of services) rows.push(await rowOf(parts, service))
  return ['| service | state | address |', '|---|---|---|', ...rows]
}

const headlines: Record<Preview['state'], string> = {
  WAITING: 'The preview of this request waits.',
  ACTIVE: 'This request has a preview.',
  REMOVING: 'The preview of this request is being removed.',
  EXPIRED: 'The preview of this request was removed. A push makes it again.',
  REFUSED: 'This request gets no preview.',
}

/** `isOver`: the request is closed, and nothing is left of the preview. */
export const commentOf = async (parts: Parts, preview: Preview, isOver: boolean): Promise<string> => {
  const { state, reason, environmentId, deployedCommit } = preview
  if (isOver) return `${markOf(preview)}\nThe preview of this request was removed with all that belonged to it.`
  const said = [headlines[state], ...(reason === null ? [] : [plain(reason, mostReason)])].join(' ')
  if (state !== 'ACTIVE' || environmentId === null) return `${markOf(preview)}\n${said}`
  const commit = deployedCommit === null ? [] : [`Commit ${deployedCommit.slice(0, 12)}`, '']
  return [markOf(preview), said, '', ...commit, ...(await tableOf(parts, environmentId))].join('\n')
}

const patienceMs = 20_000

/** Writes the comment, or changes the existing one. Rejects with a `GitHostError`. */
export const writeComment = async (
  parts: Parts,
  preview: Preview,
  text: string,
  signal: AbortSignal,
): Promise<void> => {
  const { url, gitTokenId } = await readSource(parts.database, preview)
  const host = await openGitHost(parts, preview.organizationId, url, gitTokenId)
  const limited = AbortSignal.any([signal, AbortSignal.timeout(patienceMs)])
  await host?.comment(preview.number, markOf(preview), text, limited)
}
