/** A new service, on one page: an image, a git repository, or a database. */
import { Button, NumberInput, Select, Switch, TextInput } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { run } from '../api/actions.ts'
import { answerOf, client, type FieldProblem, Problem, toProblem } from '../api/client.ts'
import * as read from '../api/queries.ts'
import { Icon } from '../ui/icons.tsx'
import { Answer, Failure } from '../ui/notices.tsx'
import { useMay, usePlace } from '../ui/place.ts'
import { addressOf } from '../ui/shell.tsx'
import { tell, tellProblem } from '../ui/toasts.tsx'

type Source = 'image' | 'git' | 'database'
type Body = Record<string, unknown>

const sources: Record<Source, { icon: 'box' | 'branch' | 'database'; title: string; text: string; kind: read.Kind }> = {
  image: { icon: 'box', title: 'Image', text: 'Run an image from a registry', kind: 'container' },
  git: { icon: 'branch', title: 'Git repository', text: 'Build a Dockerfile and run it', kind: 'application' },
  database: { icon: 'database', title: 'Database', text: 'PostgreSQL, MySQL, MongoDB or Redis', kind: 'database' },
}

interface FormProps {
  body: Body
  change(fields: Body): void
  problem(field: string): string | undefined
  environmentId: string
}

/** The last part of an address is a good name, in the letters that names have. */
const nameFrom = (text: string): string =>
  (
    text
      .replace(/(\.git)?\/*$/, '')
      .split(/[/:]/)
      .at(-1) ?? ''
  )
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]+/g, '-')

const portOf = (body: Body) =>
  (body.ports as { internal_port: number; publicly_accessible: boolean }[] | undefined)?.[0]

const PortFields = ({ body, change, problem }: Omit<FormProps, 'environmentId'>) => {
  const port = portOf(body)
  const put = (number: number | null, isPublic: boolean): void =>
    change({
      ports:
        number === null
          ? []
          : [{ internal_port: number, external_port: 443, protocol: 'HTTP', publicly_accessible: isPublic }],
    })
  return (
    <div className="stack">
      <NumberInput
        label="Port"
        description="The port that it listens on for HTTP. Leave it empty if it has none."
        min={1}
        max={65_535}
        hideControls
        value={port?.internal_port ?? ''}
        onChange={(value) => put(typeof value === 'number' ? value : null, port?.publicly_accessible ?? true)}
        error={problem('/ports')}
      />
      <Switch
        label="Public: it gets an address"
        disabled={port === undefined}
        checked={port?.publicly_accessible ?? false}
        onChange={(event) => put(port!.internal_port, event.currentTarget.checked)}
      />
    </div>
  )
}

const NameField = ({ body, change, problem }: Omit<FormProps, 'environmentId'>) => (
  <TextInput
    label="Name"
    required
    value={String(body.name ?? '')}
    onChange={(event) => change({ name: event.currentTarget.value })}
    error={problem('/name')}
  />
)

const imageForm =
  /^(?:(?<host>[\w-]+(?:\.[\w-]+)+(?::\d+)?|localhost(?::\d+)?)\/)?(?<name>[^:@]+?)(?::(?<tag>[^:@/]+))?(?:@(?<digest>sha256:[0-9a-f]+))?$/

interface Registry {
  id: string
  name: string
  url?: string | undefined
}

const hostOf = (url: string | undefined): string => (url ?? '').replace(/^https?:\/\//, '').replace(/\/.*$/, '')

const ImageForm = ({ body, change, problem }: FormProps) => {
  const { organizationId = '' } = usePlace()
  const [text, setText] = useState('')
  const registries = useQuery({
    queryKey: ['registries', organizationId],
    queryFn: async () =>
      (
        await answerOf(
          client.GET('/organization/{organizationId}/containerRegistry', { params: { path: { organizationId } } }),
        )
      ).results as Registry[],
    enabled: organizationId !== '',
  })
  const take = (next: string): void => {
    setText(next)
    const { host, name = '', tag, digest } = imageForm.exec(next.trim())?.groups ?? {}
    const all = registries.data ?? []
    const hub = all.find(({ url }) => /docker\.io$/.test(hostOf(url))) ?? all[0]
    const registry = host === undefined ? hub : (all.find(({ url }) => hostOf(url) === host) ?? undefined)
    const isNamed = body.name === undefined || body.name === '' || body.name === nameFrom(String(body.image_name ?? ''))
    change({
      image_name: name,
      tag: digest ?? tag ?? 'latest',
      registry_id: registry?.id ?? '',
      ...(isNamed ? { name: nameFrom(name) } : {}),
    })
  }
  return (
    <>
      <TextInput
        label="Image"
        description="Such as nginx:1.29 or ghcr.io/team/app:2.1"
        required
        data-autofocus
        value={text}
        onChange={(event) => take(event.currentTarget.value)}
        error={problem('/image_name') ?? problem('/tag')}
        styles={{ input: { fontFamily: 'var(--mono)' } }}
      />
      <Select
        label="Registry"
        required
        data={(registries.data ?? []).map(({ id, name, url }) => ({ value: id, label: `${name} (${hostOf(url)})` }))}
        value={String(body.registry_id ?? '') || null}
        onChange={(value) => change({ registry_id: value })}
        error={problem('/registry_id')}
      />
      <NameField {...{ body, change, problem }} />
      <PortFields {...{ body, change, problem }} />
    </>
  )
}

interface Git {
  url: string
  branch?: string
  root_path?: string
}

const GitForm = ({ body, change, problem, environmentId }: FormProps) => {
  const git = (body.git_repository as Git | undefined) ?? { url: '' }
  const put = (fields: Partial<Git>): void => {
    const isNamed = body.name === undefined || body.name === '' || body.name === nameFrom(git.url)
    change({
      git_repository: { ...git, ...fields },
      ...(isNamed && fields.url !== undefined ? { name: nameFrom(fields.url) } : {}),
    })
  }
  const checking = useMutation({
    mutationFn: () =>
      answerOf(
        client.POST('/environment/{environmentId}/checkDockerfile', {
          params: { path: { environmentId } },
          body: { git_repository: git, dockerfile_path: String(body.dockerfile_path ?? 'Dockerfile') },
        }),
      ),
  })
  return (
    <>
      <TextInput
        label="Repository"
        description="The address that git clone takes: any host."
        required
        data-autofocus
        value={git.url}
        onChange={(event) => put({ url: event.currentTarget.value })}
        error={problem('/git_repository/url') ?? problem('/git_repository')}
      />
      <div className="grid" style={{ gridTemplateColumns: 'repeat(auto-fit, minmax(180px, 1fr))' }}>
        <TextInput
          label="Branch"
          placeholder="the default branch"
          value={git.branch ?? ''}
          onChange={(event) => put({ branch: event.currentTarget.value || undefined })}
          error={problem('/git_repository/branch')}
        />
        <TextInput
          label="Folder"
          placeholder="/"
          value={git.root_path ?? ''}
          onChange={(event) => put({ root_path: event.currentTarget.value || undefined })}
          error={problem('/git_repository/root_path')}
        />
        <TextInput
          label="Dockerfile"
          value={String(body.dockerfile_path ?? '')}
          onChange={(event) => change({ dockerfile_path: event.currentTarget.value })}
          error={problem('/dockerfile_path')}
        />
      </div>
      <div className="row wraps">
        <Button
          variant="default"
          size="compact-sm"
          disabled={git.url === ''}
          loading={checking.isPending}
          onClick={() => checking.mutate()}
        >
          Look at the repository
        </Button>
        <span role="status" className="small">
          {checking.data === undefined ? null : (
            <span className="state good">Found {checking.data.dockerfile_path}</span>
          )}
          {checking.error === null ? null : <span style={{ color: 'var(--bad)' }}>{checking.error.message}</span>}
        </span>
      </div>
      <NameField {...{ body, change, problem }} />
      <PortFields {...{ body, change, problem }} />
    </>
  )
}

const typeWords: Record<string, string> = {
  POSTGRESQL: 'PostgreSQL',
  MYSQL: 'MySQL',
  MONGODB: 'MongoDB',
  REDIS: 'Redis',
}

const DatabaseForm = ({ body, change, problem, environmentId }: FormProps) => {
  const configurations = useQuery({
    queryKey: ['database versions', environmentId],
    queryFn: async () =>
      (
        await answerOf(
          client.GET('/environment/{environmentId}/databaseConfiguration', { params: { path: { environmentId } } }),
        )
      ).results,
    staleTime: Number.POSITIVE_INFINITY,
  })
  const versionsOf = (type: unknown): string[] =>
    (configurations.data?.find(({ database_type }) => database_type === type)?.version ?? [])
      .filter(({ supported_mode: mode }) => mode === 'CONTAINER')
      .map(({ name }) => name)
  return (
    <Answer of={configurations}>
      {(all) => (
        <>
          <div className="grid" style={{ gridTemplateColumns: 'repeat(auto-fit, minmax(180px, 1fr))' }}>
            <Select
              label="Kind"
              required
              data={all.map(({ database_type: type }) => ({ value: type, label: typeWords[type] ?? type }))}
              value={String(body.type ?? '') || null}
              onChange={(type) =>
                change({ type, version: versionsOf(type)[0], name: body.name || String(type).toLowerCase() })
              }
              error={problem('/type')}
            />
            <Select
              label="Version"
              required
              data={versionsOf(body.type)}
              value={String(body.version ?? '') || null}
              onChange={(version) => change({ version })}
              error={problem('/version')}
            />
          </div>
          <NameField {...{ body, change, problem }} />
          <NumberInput
            label="Storage (GB)"
            min={1}
            hideControls
            value={typeof body.storage === 'number' ? body.storage : ''}
            onChange={(value) => change({ storage: value === '' ? undefined : value })}
            error={problem('/storage')}
          />
          <Switch
            label="Reachable from outside"
            checked={body.accessibility === 'PUBLIC'}
            onChange={(event) => change({ accessibility: event.currentTarget.checked ? 'PUBLIC' : 'PRIVATE' })}
          />
        </>
      )}
    </Answer>
  )
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
