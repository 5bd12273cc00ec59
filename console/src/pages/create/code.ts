/** The requests of a form as code: with curl, on the command line, and as Terraform files. */
import type { ExportedKind } from '../../../../server/src/kinds.ts'
import { createLabels, type Expression, quoted, reference } from '../../../../server/src/resources/terraform/hcl.ts'
import { type Fields, serviceBlock } from '../../../../server/src/resources/terraform/provider-fields.ts'
import {
  bodyOf,
  builtIn,
  type Choice,
  isDatabase,
  kindOf,
  type Template,
  type TemplateService,
  variablesOf,
} from '../../templates/recipe.ts'

type Body = Record<string, unknown>

export interface Code {
  curl: string
  cli: string
  terraform: string
}

/** The place of the new service; names as the command line expects them. */
export interface Names {
  /** Of this server. */
  origin: string
  organization: string
  project: string
  environment: string
}

const shellWord = (text: string): string => (/^[\w./:-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`)

const json = (body: unknown): string => JSON.stringify(body, null, 2)

/** The token is not included. */
const curlOf = (origin: string, path: string, body: Body): string =>
  [
    `curl ${origin}${path} \\`,
    `  -H "Authorization: Token $TOKEN" -H 'Content-Type: application/json' \\`,
    `  -d '${json(body).replaceAll("'", "'\\''")}'`,
  ].join('\n')

const nounOf = (kind: ExportedKind, body: Body): string => {
  if (kind !== 'job') return kind
  return (body.schedule as { cronjob?: object } | undefined)?.cronjob === undefined ? 'lifecycle' : 'cronjob'
}

const cliHead = (origin: string): string[] => [
  '# The command line makes no services. When this one is there, it deploys it:',
  `export QOVERY_API_URL=${origin}`,
  'export QOVERY_CLI_ACCESS_TOKEN=$TOKEN',
]

const placeWords = ({ organization, project, environment }: Names): string =>
  [
    ['organization', organization],
    ['project', project],
    ['environment', environment],
  ]
    .map(([flag, name]) => `--${flag} ${shellWord(name!)}`)
    .join(' ')

const cliOf = (noun: string, name: string, names: Names): string =>
  [
    ...cliHead(names.origin),
    `qovery ${noun} deploy ${placeWords(names)} \\`,
    `  --${noun} ${shellWord(name)} --watch`,
  ].join('\n')

type Shape = Record<string, unknown>

const inGit = (git: unknown): Shape => ({ git: { git_repository: git } })

/** A body in the format of the record that it becomes. */
const recordOf = (kind: ExportedKind, body: Body): Shape => {
  if (kind === 'application' || kind === 'container')
    return { ports: [], storage: [], ...body, registry: { id: body.registry_id } }
  if (kind === 'helm') {
    const { helm_repository: chart, git_repository: git } = body.source as Record<string, Shape | undefined>
    const source = chart === undefined ? inGit(git) : { repository: { ...chart, repository: { id: chart.repository } } }
    return { ports: [], values_override: {}, ...body, source }
  }
  if (kind === 'terraform') {
    const { git_repository: git } = body.terraform_files_source as Shape
    return {
      auto_deploy_config: { terraform_action: 'DEFAULT' },
      terraform_variables_source: { tf_var_file_paths: [], tf_vars: [] },
      ...body,
      terraform_files_source: inGit(git),
    }
  }
  return body
}

const terraformHead = (origin: string): string =>
  `# The provider qovery/qovery reads TEST_QOVERY_HOST=${origin}; without it, it talks to its maker.\n`

const hclOf = (origin: string, kind: ExportedKind, body: Body, environmentId: string): string => {
  const label = createLabels()(String(body.name ?? 'service') || 'service')
  return (
    terraformHead(origin) +
    serviceBlock(kind, label, recordOf(kind, body), { before: { environment_id: environmentId } })
  )
}

export const codeOf = (kind: ExportedKind, body: Body, environmentId: string, names: Names): Code => ({
  curl: curlOf(names.origin, `/environment/${environmentId}/${kind}`, body),
  cli: cliOf(nounOf(kind, body), String(body.name ?? ''), names),
  terraform: hclOf(names.origin, kind, body, environmentId),
})

const shellName = (text: string): string => text.replaceAll(/\W/g, '_')

/** JSON for a here-document: text that the shell would interpret is escaped, except the expressions of `fill`. */
const shellJson = (make: (expression: (text: string) => string) => unknown): string => {
  const expressions: string[] = []
  const mark = (text: string): string => `\ue000${expressions.push(text) - 1}\ue001`
  return json(make(mark))
    .replaceAll(/[\\$`]/g, (sign) => `\\${sign}`)
    .replaceAll(/\ue000(\d+)\ue001/g, (_, index) => expressions[Number(index)]!)
}

const shellHead = (origin: string): string[] => [
  `url=${origin}`,
  `ask() { curl -sSf "$url$1" -H "Authorization: Token $TOKEN" -H 'Content-Type: application/json' "\${@:2}"; }`,
  'made() { ask "$1" -d @- | jq -r .id; }',
  '# The first eight digits of an id: how others call the service in their variables.',
  'part() { printf %.8s "$1" | tr a-f A-F; }',
]

const templateCurl = (template: Template, choice: Choice, { origin }: Names): string => {
  const { services, secrets = {} } = template
  const entries = Object.entries(services)
  const needsUrl = entries.filter(([key]) => json(services).includes(`{{${key}.url}}`))
  return [
    ...shellHead(origin),
    ...Object.entries(secrets).map(
      ([name, length]) => `secret_${shellName(name)}=$(openssl rand -hex ${Math.ceil(length / 2)})`,
    ),
    ...entries.map(([key, service]) => {
      const path = `/environment/${choice.environmentId}/${kindOf(service)}`
      return `${shellName(key)}=$(made ${path} <<'END'\n${json(bodyOf(key, service, choice))}\nEND\n)`
    }),
    ...needsUrl.map(([key]) => {
      const name = shellName(key)
      return `${name}_url=$(ask "/container/$${name}/link" | jq -r '.results[0].url')`
    }),
    ...entries.flatMap(([key, service]) => {
      const body = shellJson((expression) => ({
        overwrite: true,
        vars: variablesOf(service, (from, word) => {
          if (from === 'secret') return expression(`$secret_${shellName(word)}`)
          if (word === 'url') return expression(`$${shellName(from)}_url`)
          return builtIn(services[from]!, expression(`$(part "$${shellName(from)}")`), word)
        }),
      }))
      const path = `/container/$${shellName(key)}/environmentVariable/import`
      return body.includes('"name"') ? [`ask "${path}" -d @- <<END\n${body}\nEND`] : []
    }),
  ].join('\n')
}

const templateCli = (template: Template, choice: Choice, names: Names): string =>
  [
    ...cliHead(names.origin),
    ...Object.entries(template.services).map(([key, service]) => {
      const noun = kindOf(service)
      const { name } = bodyOf(key, service, choice)
      return `qovery ${noun} deploy ${placeWords(names)} --${noun} ${shellWord(String(name))} --watch`
    }),
  ].join('\n')

/** A value with references, as an expression of Terraform. */
const terraformValue = (
  value: string,
  services: Record<string, TemplateService>,
  addressOf: (key: string) => string,
): Expression | string => {
  const parts = value.split(/(\{\{\w+\.\w+\}\})/).map((part) => {
    const [, from, word] = /^\{\{(\w+)\.(\w+)\}\}$/.exec(part) ?? []
    if (from === undefined) return quoted(part).slice(1, -1)
    if (from === 'secret') return `\${var.${word}}`
    if (word === 'url') return `https://\${${addressOf(from)}.external_host}`
    return builtIn(services[from]!, `\${upper(substr(${addressOf(from)}.id, 0, 8))}`, word!)
  })
  return parts.length === 1 ? value : reference(`"${parts.join('')}"`)
}

const templateTerraform = (template: Template, choice: Choice, { origin }: Names): string => {
  const { services, secrets = {} } = template
  const labelOf = createLabels()
  const labels = Object.fromEntries(
    Object.entries(services).map(([key, service]) => [key, labelOf(String(bodyOf(key, service, choice).name))]),
  )
  const addressOf = (key: string): string => `qovery_${kindOf(services[key]!)}.${labels[key]}`
  const asked = Object.keys(secrets).map((name) => `variable "${name}" {\n  type = string\n  sensitive = true\n}\n`)
  const blocks = Object.entries(services).map(([key, service]) => {
    const written = Object.entries(isDatabase(service) ? {} : (service.variables ?? {}))
    const secretNames = new Set(
      variablesOf(service, () => '').flatMap(({ name, is_secret: isSecret }) => (isSecret ? [name] : [])),
    )
    const listed = (wanted: boolean): Fields[] =>
      // References to the service itself are known only when it exists.
      written
        .filter(([name, value]) => secretNames.has(name) === wanted && !value.includes(`{{${key}.`))
        .map(([name, value]) => ({ key: name, value: terraformValue(value, services, addressOf) }))
    const after: Fields = written.length === 0 ? {} : { environment_variables: listed(false), secrets: listed(true) }
    const kind = kindOf(service)
    const record = recordOf(kind, bodyOf(key, service, choice))
    const own = written.filter(([, value]) => value.includes(`{{${key}.`)).map(([name]) => name)
    const note = own.length === 0 ? '' : `# Set after the first apply, to its address: ${own.join(', ')}\n`
    return note + serviceBlock(kind, labels[key]!, record, { before: { environment_id: choice.environmentId }, after })
  })
  return [terraformHead(origin) + asked.join('\n'), ...blocks].filter((text) => text !== '').join('\n')
}

export const templateCode = (template: Template, choice: Choice, names: Names): Code => ({
  curl: templateCurl(template, choice, names),
  cli: templateCli(template, choice, names),
  terraform: templateTerraform(template, choice, names),
})
