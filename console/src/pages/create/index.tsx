/** Creates a service, on one page, from every kind of source. */
import { Button } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { type FormEvent, type ReactNode, useState } from 'react'
import { run } from '../../api/actions.ts'
import { answerOf, client, type FieldProblem, Problem, pathLike, toProblem } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { addressOf } from '../../ui/crumbs.tsx'
import { ProblemNote } from '../../ui/dialog.tsx'
import { Icon, type IconName } from '../../ui/icons.tsx'
import { Answer, Empty, Failure } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { tell, tellProblem } from '../../ui/toasts.tsx'
import { codeOf } from './code.ts'
import { CodePanel, useNames } from './code-panel.tsx'
import { DatabaseForm } from './database.tsx'
import type { Body, FormProps } from './fields.tsx'
import { GitForm } from './git.tsx'
import { HelmForm } from './helm.tsx'
import { ImageForm } from './image.tsx'
import { JobForm } from './job.tsx'
import { TemplatePage } from './template.tsx'
import { TerraformForm, withoutDefaults } from './terraform.tsx'

type Source = 'image' | 'git' | 'database' | 'job' | 'helm' | 'terraform'
type Choice = Source | 'template'

const choices: Record<Choice, { icon: IconName; title: string; text: string }> = {
  template: { icon: 'copy', title: 'Template', text: 'A well-known application, ready to run' },
  image: { icon: 'box', title: 'Image', text: 'Run an image from a registry' },
  git: { icon: 'branch', title: 'Git repository', text: 'Build a Dockerfile and run it' },
  database: { icon: 'database', title: 'Database', text: 'PostgreSQL, MySQL, MongoDB or Redis' },
  job: { icon: 'restart', title: 'Job', text: 'A program that ends: by a schedule, or with deployments' },
  helm: { icon: 'helm', title: 'Helm chart', text: 'Install a chart on a Kubernetes cluster' },
  terraform: { icon: 'blocks', title: 'Terraform', text: 'Apply a module of a git repository' },
}

interface Way {
  kind: Exclude<read.Kind, 'argocdApp'>
  Part: (props: FormProps) => ReactNode
  beginning: Body
  /** The part of the body that is sent. */
  toSend?: (body: Body) => Body
}

const ways: Record<Source, Way> = {
  image: { kind: 'container', Part: ImageForm, beginning: {} },
  git: { kind: 'application', Part: GitForm, beginning: { dockerfile_path: 'Dockerfile', build_mode: 'DOCKER' } },
  database: {
    kind: 'database',
    Part: DatabaseForm,
    beginning: { mode: 'CONTAINER', accessibility: 'PRIVATE', storage: 10 },
  },
  job: {
    kind: 'job',
    Part: JobForm,
    beginning: { source: { image: {} }, schedule: { cronjob: { scheduled_at: '' } }, healthchecks: {} },
  },
  helm: {
    kind: 'helm',
    Part: HelmForm,
    beginning: { source: { helm_repository: { chart_name: '', chart_version: '' } } },
  },
  terraform: {
    kind: 'terraform',
    Part: TerraformForm,
    beginning: {
      terraform_files_source: { git_repository: { url: '' } },
      terraform_variables_source: { tf_var_file_paths: [], tf_vars: [] },
      engine: 'TERRAFORM',
      provider_version: { read_from_terraform_block: false, explicit_version: '' },
      backend: { kubernetes: {} },
    },
    toSend: withoutDefaults,
  },
}

const CreateForm = ({ source, environmentId }: { source: Source; environmentId: string }) => {
  const { kind, Part, beginning, toSend = (each) => each } = ways[source]
  const [body, setBody] = useState<Body>(beginning)
  const [problems, setProblems] = useState<readonly FieldProblem[]>([])
  const navigate = useNavigate()
  const may = useMay()
  const names = useNames(environmentId)
  const making = useMutation({
    async mutationFn(deploys: boolean) {
      const made = await answerOf(
        client.POST(pathLike('/environment/{environmentId}/container', 'container', kind), {
          params: { path: { environmentId } },
          body: toSend(body) as never,
        }),
      )
      return { id: made.id, name: made.name, deploys }
    },
    async onSuccess({ id, name, deploys }) {
      tell(`${name} was created.`)
      // It exists, even if its first deployment fails.
      if (deploys) await run({ verb: 'deploy', target: { id, name, kind, environmentId } }).catch(tellProblem)
      void read.refresh(['services', environmentId])
      await navigate({ to: addressOf({ kind, id }) })
    },
    onError: (error) => setProblems(toProblem(error).details),
  })
  const make = (deploys: boolean): void => {
    setProblems([])
    making.mutate(deploys)
  }
  const submit = (event: FormEvent): void => {
    event.preventDefault()
    make(may('deploy'))
  }
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
      <ProblemNote error={making.error} />
      <div className="row wraps">
        <Button type="submit" loading={making.isPending}>
          {may('deploy') ? 'Create and deploy' : 'Create'}
        </Button>
        {may('deploy') ? (
          <Button variant="default" disabled={making.isPending} onClick={() => make(false)}>
            Create only
          </Button>
        ) : null}
      </div>
      <CodePanel code={() => codeOf(kind, toSend(body), environmentId, names)} />
    </form>
  )
}

export const Create = () => {
  const { environmentId, kind } = useParams({ from: '/frame/e/$environmentId/new/$kind' })
  const environment = useQuery(read.environment(environmentId))
  const may = useMay()
  read.useTitle('New service', environment.data?.name)
  if (!(kind in choices)) return <Failure error={new Problem(404, {})} />
  return (
    <Answer of={environment}>
      {() =>
        may('write') ? (
          <div className="stack wide">
            <h1>New service</h1>
            <nav
              className="grid ways"
              style={{ gridTemplateColumns: 'repeat(auto-fill, minmax(min(210px, 45%), 1fr))' }}
              aria-label="What it is made from"
            >
              {Object.entries(choices).map(([each, { icon, title, text }]) => (
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
            {kind === 'template' ? (
              <TemplatePage environmentId={environmentId} />
            ) : (
              <CreateForm key={kind} source={kind as Source} environmentId={environmentId} />
            )}
          </div>
        ) : (
          <Empty title="You may not create services here">
            <p>Ask an administrator of the organization for a role or a token that may.</p>
          </Empty>
        )
      }
    </Answer>
  )
}
