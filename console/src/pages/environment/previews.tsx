/**
 * The effects of pushes and pull requests on an environment: its push hooks, and the previews with the reasons of
 * waiting.
 */

import { useMutation, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { answerOf, client, inPath, resultsOf, type Schemas } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { Answer, Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { ListTable, Rows } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { Time } from '../../ui/time.tsx'
import { tell, tellProblem } from '../../ui/toasts.tsx'

type Preview = Schemas['Preview']

const stateWords: Record<Preview['state'], [string, string]> = {
  WAITING: ['Waiting', 'warn'],
  ACTIVE: ['Active', 'good'],
  REMOVING: ['Being removed', ''],
  EXPIRED: ['Expired', ''],
  REFUSED: ['Refused', 'bad'],
}

const hookWords: Record<string, [string, string]> = {
  ACTIVE: ['reports pushes', 'good'],
  NOT_CONFIGURED: ['no webhook: asked every minute', ''],
  MISCONFIGURED: ['the webhook is wrong', 'bad'],
  UNABLE_TO_VERIFY: ['not checked yet', 'warn'],
}

const Sync = ({ id, name }: { id: string; name: string }) => {
  const syncing = useMutation({
    mutationFn: () => answerOf(client.POST('/service/{serviceId}/gitWebhook/sync', inPath({ serviceId: id }))),
    onSuccess() {
      tell(`The webhook of ${name} was set up at its git host.`)
      void read.refresh(['push state', id])
    },
    onError: tellProblem,
  })
  return (
    <SmallButton loading={syncing.isPending} onClick={() => syncing.mutate()}>
      Set up<span className="if-wide"> the webhook</span>
      <span className="hidden-text"> of {name}</span>
    </SmallButton>
  )
}

const outcomeWords: Record<string, string> = {
  DEPLOYED: 'was deployed',
  SKIPPED: 'was skipped',
  REFUSED: 'was refused',
  WAITING: 'waits',
}

const PushRow = ({ service: { id, name } }: { service: read.Service }) => {
  const may = useMay()
  const { data, error } = useQuery({
    queryKey: ['push state', id],
    queryFn: () => answerOf(client.GET('/service/{serviceId}/gitWebhookStatus', inPath({ serviceId: id }))),
  })
  const [word, tone] = hookWords[data?.status ?? ''] ?? ['…', '']
  const last = data?.last_push ?? null
  return (
    <tr>
      <td className="wrap strong">{name}</td>
      <td>
        {error === null ? (
          <span className={`chip ${tone}`}>{word}</span>
        ) : (
          <span className="wrap">{error.message}</span>
        )}
        {data?.look_error == null ? null : <p className="small bad-text wrap">{data.look_error}</p>}
        {(data?.missing_events ?? []).length === 0 ? null : (
          <p className="small wrap">The webhook lacks the events {data?.missing_events.join(', ')}.</p>
        )}
      </td>
      <td className="optional wrap">
        {last === null ? (
          <span className="dim">no new commit yet</span>
        ) : (
          <>
            <code>{last.commit_id.slice(0, 7)}</code> {outcomeWords[last.outcome] ?? last.outcome},{' '}
            <Time at={last.at} />
            {last.reason === null ? null : <p className="dim small wrap">{last.reason}</p>}
          </>
        )}
      </td>
      <td className="tight">{may('write') ? <Sync id={id} name={name} /> : null}</td>
    </tr>
  )
}

const hasRepository = ({ raw }: read.Service): boolean =>
  typeof raw.git_repository === 'object' && raw.git_repository !== null

const Pushes = ({ environmentId, organizationId }: { environmentId: string; organizationId: string }) => {
  const services = useQuery(read.services(environmentId))
  return (
    <section className="stack">
      <div className="row wraps">
        <h2 className="grow">Pushes</h2>
        <Link to="/o/$organizationId/$section" params={{ organizationId, section: 'pushes' }}>
          Push hooks of the organization
        </Link>
      </div>
      <Answer of={services}>
        {(all) => {
          const found = all.filter(hasRepository)
          if (found.length === 0)
            return (
              <Empty title="No service is built from a repository">
                <p>A service built from one can be deployed whenever its branch is pushed to.</p>
              </Empty>
            )
          return (
            <ListTable
              label="Pushes"
              isCard
              heads={{ Service: '', 'Git host': '', 'Last push': 'optional', Actions: 'tight hidden' }}
            >
              {found.map((service) => (
                <PushRow key={service.id} service={service} />
              ))}
            </ListTable>
          )
        }}
      </Answer>
    </section>
  )
}

const PullRequest = ({ preview: { pull_request: request } }: { preview: Preview }) => {
  const words = `#${request.number} ${request.title}`
  const isAddress = /^https?:\/\//.test(request.url)
  return (
    <div style={{ minWidth: 110 }}>
      {isAddress ? (
        <a href={request.url} target="_blank" rel="noreferrer" className="wrap">
          {words}
        </a>
      ) : (
        <span className="wrap">{words}</span>
      )}
      <p className="dim small wrap">{request.branch}</p>
    </div>
  )
}

const usePreviews = (environmentId: string) =>
  useQuery({
    queryKey: ['previews', environmentId],
    queryFn: () => answerOf(client.GET('/environment/{environmentId}/preview', inPath({ environmentId }))),
  })

// The page of the limits shares this query: its rows need an id.
const Limit = ({ organizationId }: { organizationId: string }) => {
  const { data } = useQuery({
    queryKey: ['limits', organizationId],
    queryFn: async () => {
      const asked = client.GET('/organization/{organizationId}/limits', inPath({ organizationId }))
      return (await resultsOf(asked)).map((each) => ({ ...each, id: each.name }))
    },
  })
  const limit = data?.find(({ name }) => name === 'PREVIEWS_PER_PROJECT')?.limit
  return limit == null ? null : <span className="dim small">At most {limit} in a project at once; others wait.</span>
}

/** The addresses of its services: one of each. */
const Addresses = ({ environmentId }: { environmentId: string }) => {
  const { data = [] } = useQuery(read.links(environmentId))
  const first = [...new Map(data.toReversed().map(({ service_id: id, url }) => [id, url])).values()]
  return first.map((url) => (
    <a key={url} href={url} target="_blank" rel="noreferrer" className="wrap small" style={{ display: 'block' }}>
      {url}
    </a>
  ))
}

const PreviewEnvironment = ({ id }: { id: string | null }) =>
  id === null ? (
    <span className="dim">none</span>
  ) : (
    <div style={{ minWidth: 130 }}>
      <Link to="/e/$environmentId/$section" params={{ environmentId: id, section: 'services' }}>
        Open its services
      </Link>
      <Addresses environmentId={id} />
    </div>
  )

const NoPreviews = ({ environmentId }: { environmentId: string }) => (
  <Empty
    title="No previews"
    actions={
      <Link to="/e/$environmentId/$section" params={{ environmentId, section: 'settings' }}>
        Settings of this environment
      </Link>
    }
  >
    <p>
      Where a service and the deployment rule of this environment have previews switched on, each open pull request to
      the branch of the service gets a clone of the environment.
    </p>
  </Empty>
)

const PullRequests = ({ environmentId, organizationId }: { environmentId: string; organizationId: string }) => {
  const previews = usePreviews(environmentId)
  const problems = previews.data?.problems ?? []
  return (
    <section className="stack">
      <div>
        <h2>Previews of pull requests</h2>
        <Limit organizationId={organizationId} />
      </div>
      {problems.length === 0 ? null : (
        <div className="note warn" role="status">
          <strong>Not all requests are seen.</strong>
          {problems.map((each) => (
            <p key={each} className="wrap">
              {each}
            </p>
          ))}
        </div>
      )}
      <Rows<Preview>
        of={{ data: previews.data?.results, error: previews.error, refetch: previews.refetch } as never}
        label="Previews"
        empty={<NoPreviews environmentId={environmentId} />}
        columns={[
          { title: 'Pull request', show: (row) => <PullRequest preview={row} /> },
          {
            title: 'State',
            show: ({ state, reason }) => (
              <div style={{ minWidth: reason === null ? 0 : 170 }}>
                <span className={`chip ${stateWords[state][1]}`}>{stateWords[state][0]}</span>
                {reason === null ? null : <p className="small wrap">{reason}</p>}
              </div>
            ),
          },
          { title: 'Environment', show: ({ environment_id: id }) => <PreviewEnvironment id={id} /> },
          {
            title: 'Commit',
            look: 'tight optional',
            show: ({ git_commit_id: id }) => <code>{id?.slice(0, 7) ?? '–'}</code>,
          },
          {
            title: 'Ends',
            look: 'tight optional',
            show: ({ expires_at: at }) => (at === null ? <span className="dim">–</span> : <Time at={at} />),
          },
        ]}
      />
    </section>
  )
}

export const Previews = (props: { environmentId: string; organizationId: string }) => (
  <div className="stack wide">
    <Pushes {...props} />
    <PullRequests {...props} />
  </div>
)
