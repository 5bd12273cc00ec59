/** The catalog of templates, and the form that makes the services of one. */
import { Button, Select, TextInput } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { run } from '../../api/actions.ts'
import { answerOf, client, toProblem } from '../../api/client.ts'
import { databaseWord, refresh } from '../../api/queries.ts'
import { type Call, isDatabase, makeTemplate, type Template, type TemplateService } from '../../templates/recipe.ts'
import { addressOf } from '../../ui/crumbs.tsx'
import { Empty, Failure } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { submitting } from '../../ui/submitting.ts'
import { tell, tellProblem } from '../../ui/toasts.tsx'
import { hostOf, isDockerHub, useRegistries } from './choices.ts'
import { templateCode } from './code.ts'
import { CodePanel, useNames } from './code-panel.tsx'

const files = import.meta.glob<Template>('../../templates/*.json', { eager: true, import: 'default' })

const templates = new Map(
  Object.entries(files)
    .map(([path, template]): [string, Template] => [/([\w-]+)\.json$/.exec(path)![1]!, template])
    .sort(([, left], [, right]) => left.name.localeCompare(right.name)),
)

/** The recipe makes the paths; the client adds the headers of every request. */
const send: Call = (method, path, body) => {
  const ask = client[method] as unknown as (path: string, init: object) => ReturnType<typeof client.GET>
  return answerOf(ask(path, body === undefined ? {} : { body }) as never)
}

const sourceOf = (service: TemplateService): string =>
  isDatabase(service)
    ? `${databaseWord(service.database)} ${service.version}, ${service.storage} GB`
    : [
        `${service.image.replace(/^library\//, '')}:${service.tag}`,
        ...service.ports.map(({ port, public: isPublic }) => `port ${port}${isPublic ? ', public' : ''}`),
        ...Object.entries(service.volumes ?? {}).map(([path, size]) => `${path} (${size} GB)`),
      ].join(' · ')

const Parts = ({ template, name }: { template: Template; name: string }) => (
  <section className="card">
    <header>
      <h2>What will be created</h2>
    </header>
    <div className="body stack">
      {Object.entries(template.services).map(([key, service]) => (
        <div key={key} className="stack tight">
          <span className="strong wrap">{key === 'app' ? name || template.name : `${name}-${key}`}</span>
          <span className="small dim wrap">{sourceOf(service)}</span>
          {isDatabase(service) || service.variables === undefined ? null : (
            <span className="small dim wrap mono">{Object.keys(service.variables).join(' ')}</span>
          )}
        </div>
      ))}
      {template.secrets === undefined ? null : (
        <p className="small dim">
          {Object.keys(template.secrets).length === 1 ? 'One secret is' : 'Secrets are'} generated in this browser, and
          stored encrypted.
        </p>
      )}
    </div>
  </section>
)

const TemplateForm = ({ id, template, environmentId }: { id: string; template: Template; environmentId: string }) => {
  const [name, setName] = useState(id)
  const [chosen, choose] = useState<string | null>(null)
  const registries = useRegistries()
  const names = useNames(environmentId)
  const may = useMay()
  const navigate = useNavigate()
  const needsRegistry = Object.values(template.services).some((each) => !isDatabase(each))
  const hubs = registries.all.filter(isDockerHub)
  const registryId = chosen ?? hubs[0]?.id ?? ''
  const choice = { environmentId, name, registryId }
  const making = useMutation({
    mutationFn: () => makeTemplate(template, choice, send),
    async onSuccess(made) {
      const { app, ...others } = made
      tell(`${app!.name} was created.`)
      if (may('deploy'))
        for (const { id: serviceId, kind, name: called } of [...Object.values(others), app!])
          await run({ verb: 'deploy', target: { id: serviceId, name: called, kind, environmentId } }).catch(tellProblem)
      void refresh(['services', environmentId])
      await navigate({ to: addressOf(app!) })
    },
  })
  const { details = [], message } = making.error === null ? {} : toProblem(making.error)
  const nameProblem = details.find(({ field }) => field === '/name')?.message
  return (
    <form className="stack wide form" onSubmit={submitting(() => making.mutate())}>
      <div className="stack tight">
        <div className="row apart wraps">
          <h2>{template.name}</h2>
          <Link to="." search={{ template: undefined }}>
            All templates
          </Link>
        </div>
        <p>{template.about}</p>
        <a href={template.website} target="_blank" rel="noreferrer">
          {template.website.replace('https://', '')}
        </a>
      </div>
      <TextInput
        label="Name"
        required
        data-autofocus
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
        error={nameProblem}
      />
      {needsRegistry && hubs.length !== 1 && (registries.isKnown || registries.problem !== undefined) ? (
        <Select
          label="Registry"
          description="The images are on Docker Hub: choose it, or a registry that passes its images on."
          required
          data={registries.all.map((each) => ({ value: each.id, label: `${each.name} (${hostOf(each.url)})` }))}
          value={registryId || null}
          onChange={choose}
          error={registries.problem}
        />
      ) : null}
      <Parts template={template} name={name} />
      {template.note === undefined ? null : <p className="note wrap">{template.note}</p>}
      {message === undefined || nameProblem !== undefined ? null : (
        <div className="note bad wrap" role="alert">
          {message}
        </div>
      )}
      <div className="row wraps">
        <Button type="submit" loading={making.isPending} disabled={needsRegistry && registryId === ''}>
          {may('deploy') ? 'Create and deploy' : 'Create'}
        </Button>
      </div>
      <CodePanel code={() => templateCode(template, choice, names)} />
    </form>
  )
}

const Catalogue = () => {
  const [q, setQ] = useState('')
  const fits = ({ name, about, category }: Template): boolean =>
    `${name} ${about} ${category}`.toLowerCase().includes(q.trim().toLowerCase())
  const found = [...templates].filter(([, template]) => fits(template))
  const categories = [...Map.groupBy(found, ([, { category }]) => category)].sort(([left], [right]) =>
    left.localeCompare(right),
  )
  return (
    <div className="stack wide">
      <TextInput
        aria-label="Search the templates"
        placeholder={`Search ${templates.size} templates`}
        value={q}
        onChange={(event) => setQ(event.currentTarget.value)}
        style={{ maxWidth: 360 }}
      />
      {categories.length === 0 ? <Empty title="No template matches the search" /> : null}
      {categories.map(([category, members]) => (
        <section key={category} className="stack">
          <h2>{category}</h2>
          <div className="grid">
            {members.map(([id, { name, about }]) => (
              <Link key={id} to="." search={{ template: id }} className="card tile">
                <span className="strong">{name}</span>
                <span className="dim small" style={{ display: 'block' }}>
                  {about}
                </span>
              </Link>
            ))}
          </div>
        </section>
      ))}
    </div>
  )
}

export const TemplatePage = ({ environmentId }: { environmentId: string }) => {
  const { template: id } = useSearch({ from: '/frame/e/$environmentId/new/$kind' })
  const template = id === undefined ? undefined : templates.get(id)
  if (id === undefined) return <Catalogue />
  if (template === undefined) return <Failure error={toProblem(new Error('There is no such template.'))} />
  return <TemplateForm key={id} id={id} template={template} environmentId={environmentId} />
}
