/** A new service, on one page: an image, a git repository, or a database. */
import { Button } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { run } from '../../api/actions.ts'
import { answerOf, client, type FieldProblem, Problem, toProblem } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { Icon } from '../../ui/icons.tsx'
import { Answer, Failure } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { addressOf } from '../../ui/shell.tsx'
import { tell, tellProblem } from '../../ui/toasts.tsx'
import { DatabaseForm } from './database.tsx'
import type { Body } from './fields.tsx'
import { GitForm } from './git.tsx'
import { ImageForm } from './image.tsx'

type Source = 'image' | 'git' | 'database'

const sources: Record<Source, { icon: 'box' | 'branch' | 'database'; title: string; text: string; kind: read.Kind }> = {
  image: { icon: 'box', title: 'Image', text: 'Run an image from a registry', kind: 'container' },
  git: { icon: 'branch', title: 'Git repository', text: 'Build a Dockerfile and run it', kind: 'application' },
  database: { icon: 'database', title: 'Database', text: 'PostgreSQL, MySQL, MongoDB or Redis', kind: 'database' },
}

const parts = { image: ImageForm, git: GitForm, database: DatabaseForm }
const beginnings: Record<Source, Body> = {
  image: {},
  git: { dockerfile_path: 'Dockerfile', build_mode: 'DOCKER' },
  database: { mode: 'CONTAINER', accessibility: 'PRIVATE', storage: 10 },
}

/** The same by the API; the token stays out of it. */
const curlOf = (path: string, body: Body): string =>
  [
    `curl ${location.origin}${path} \\`,
    `  -H "Authorization: Token $TOKEN" -H 'Content-Type: application/json' \\`,
    `  -d '${JSON.stringify(body, null, 2).replaceAll("'", "'\\''")}'`,
  ].join('\n')

const CreateForm = ({ source, environmentId }: { source: Source; environmentId: string }) => {
  const { kind } = sources[source]
  const [body, setBody] = useState<Body>(beginnings[source])
  const [problems, setProblems] = useState<readonly FieldProblem[]>([])
  const [failure, setFailure] = useState<string | null>(null)
  const queries = useQueryClient()
  const navigate = useNavigate()
  const may = useMay()
  const path = `/environment/${environmentId}/${kind}`
  const making = useMutation({
    async mutationFn(deploys: boolean) {
      const made = await answerOf(
        client.POST(`/environment/{environmentId}/${kind}` as '/environment/{environmentId}/container', {
          params: { path: { environmentId } },
          body: body as never,
        }),
      )
      return { id: made.id, name: made.name, deploys }
    },
    async onSuccess({ id, name, deploys }) {
      tell(`${name} was created.`)
      // It is there, whatever becomes of its first deployment.
      if (deploys) await run({ verb: 'deploy', target: { id, name, kind, environmentId } }).catch(tellProblem)
      void queries.invalidateQueries({ queryKey: ['services', environmentId] })
      await navigate({ to: addressOf({ kind, id }) })
    },
    onError(error) {
      const { details, message } = toProblem(error)
      setProblems(details)
      setFailure(message)
    },
  })
  const submit = (event: FormEvent): void => {
    event.preventDefault()
    setProblems([])
    setFailure(null)
    making.mutate(may('deploy'))
  }
  const Part = parts[source]
  return (
    <form className="stack wide form" onSubmit={submit}>
      <Part
        body={body}
        environmentId={environmentId}
        change={(fields) => setBody((before) => ({ ...before, ...fields }))}
        problem={(field) =>
          problems.find((each) => each.field === field || each.field.startsWith(`${field}/`))?.message
        }
      />
      {failure === null ? null : (
        <div className="note bad wrap" role="alert">
          {failure}
        </div>
      )}
      <div className="row wraps">
        <Button type="submit" loading={making.isPending}>
          {may('deploy') ? 'Create and deploy' : 'Create'}
        </Button>
        {may('deploy') ? (
          <Button variant="default" disabled={making.isPending} onClick={() => making.mutate(false)}>
            Create only
          </Button>
        ) : null}
      </div>
      <details>
        <summary className="dim">The same with curl</summary>
        <pre className="code" style={{ marginTop: 10 }}>
          {curlOf(path, body)}
        </pre>
      </details>
    </form>
  )
}

export const Create = () => {
  const { environmentId, kind } = useParams({ from: '/frame/e/$environmentId/new/$kind' })
  const environment = useQuery(read.environment(environmentId))
  const may = useMay()
  read.useTitle('New service', environment.data?.name)
  if (!(kind in sources)) return <Failure error={new Problem(404, {})} />
  return (
    <Answer of={environment}>
      {() =>
        may('write') ? (
          <div className="stack wide">
            <h1>New service</h1>
            <nav
              className="grid form"
              style={{ gridTemplateColumns: 'repeat(auto-fit, minmax(180px, 1fr))' }}
              aria-label="What it is made from"
            >
              {Object.entries(sources).map(([each, { icon, title, text }]) => (
                <Link
                  key={each}
                  to="/e/$environmentId/new/$kind"
                  params={{ environmentId, kind: each }}
                  replace
                  className="card tile row top"
                  aria-current={each === kind ? 'page' : undefined}
                  style={
                    each === kind ? { borderColor: 'var(--accent)', boxShadow: '0 0 0 1px var(--accent)' } : undefined
                  }
                >
                  <Icon name={icon} size={20} />
                  <span className="stack" style={{ gap: 0 }}>
                    <span className="strong">{title}</span>
                    <span className="dim small">{text}</span>
                  </span>
                </Link>
              ))}
            </nav>
            <CreateForm key={kind} source={kind as Source} environmentId={environmentId} />
          </div>
        ) : (
          <Failure error={new Problem(403, { message: 'Your role may not create services here.' })} />
        )
      }
    </Answer>
  )
}
