/**
 * Credentials of cloud providers, used by clusters. One description per provider; the operations are the same for all.
 * Only an Admin can create, change or delete them; secrets are sealed and never answered.
 */
import Type, { type TProperties, type TSchema } from 'typebox'
import { type Context, type Operation, operation, organizationInPath, reading } from '../../api/operations/operation.ts'
import { type Change, resource, type Spec } from '../../api/operations/resource.ts'
import {
  AllRecorded,
  ForModule,
  Maybe,
  Name,
  OneOf,
  Recorded,
  Results,
  Secret,
  secretPaths,
  Text,
  Uuid,
  Whole,
} from '../../api/operations/schema.ts'
import type { ModuleProvider } from '../../clusters/modules.ts'
import { loginFields } from '../../clusters/provider-login.ts'
import { invalidField } from '../../lib/errors.ts'
import { recordSql } from '../../store/tree.ts'
import { answerFrom } from '../answer-from.ts'
import { refuseInUse, usersOfN } from '../references.ts'
import { type Form, isGiven } from './engine-credentials.ts'
import { checkedMachine, machineFields, machineFormOf, machineForms } from './machine-credentials.ts'
import { noteUnreadFields } from './managed/unread-fields.ts'

interface Provider {
  /** In paths. */
  path: string
  /** In ids. */
  word: string
  vendor: string
  /** The field that selects the form, if requests have one. */
  choose?: string
  forms: readonly Form[]
  /** Chooses by the stored and the sent fields, where no field selects the form. */
  formOf?: typeof machineFormOf
  /** Work before a create or edit begins. */
  around?: typeof checkedMachine
  /** Other words for a choice. */
  alias?: Record<string, string>
  fields: Record<string, TSchema>
}

const Line = () => Maybe(Text(2048))
const none = () => ''

/** `name@project.iam.gserviceaccount.com`, or the name in the resource. */
const projectOf = ({ service_account_email: email, workload_identity_provider_resource: resource }: Spec): string =>
  /@([^.]+)\.iam\.gserviceaccount\.com$/.exec(String(email))?.[1] ??
  /projects\/([^/]+)\//.exec(String(resource))?.[1] ??
  ''

const awsKeys = ['access_key_id', 'secret_access_key']
const vsphere = ['vsphere_user', 'vsphere_password']

const providers: readonly Provider[] = [
  {
    path: 'aws',
    word: 'AWS',
    vendor: 'AWS',
    choose: 'type',
    forms: [
      { objectType: 'EKS_ANYWHERE_VSPHERE', choice: 'EKS_ANYWHERE_VSPHERE_ROLE', needs: [...vsphere, 'role_arn'] },
      { objectType: 'EKS_ANYWHERE_VSPHERE', choice: 'EKS_ANYWHERE_VSPHERE_STATIC', needs: [...vsphere, ...awsKeys] },
      { objectType: 'AWS_ROLE', choice: 'AWS_ROLE', needs: ['role_arn'] },
      { objectType: 'AWS', choice: 'AWS_STATIC', needs: awsKeys },
    ],
    fields: {
      access_key_id: Line(),
      secret_access_key: Maybe(Secret(4096)),
      role_arn: Line(),
      vsphere_user: Line(),
      vsphere_password: Maybe(Secret(4096)),
    },
  },
  {
    path: 'azure',
    word: 'Azure',
    vendor: 'AZURE',
    forms: [
      {
        objectType: 'AZURE',
        needs: ['azure_subscription_id', 'azure_tenant_id'],
        may: {
          azure_application_id: none,
          azure_application_secret: () => undefined,
          azure_application_object_id: none,
        },
      },
    ],
    fields: {
      azure_subscription_id: Line(),
      azure_tenant_id: Line(),
      azure_application_id: Line(),
      azure_application_secret: Maybe({
        ...Secret(4096),
        description: 'A secret of `azure_application_id`, by which the module of a MANAGED cluster logs in.',
      }),
      azure_application_object_id: Line(),
    },
  },
  {
    path: 'gcp',
    word: 'Gcp',
    vendor: 'GCP',
    choose: 'credential_type',
    alias: { WIF: 'WORKLOAD_IDENTITY_FEDERATION' },
    forms: [
      {
        objectType: 'GCP_WORKLOAD_IDENTITY_FEDERATION',
        choice: 'WORKLOAD_IDENTITY_FEDERATION',
        needs: ['service_account_email', 'workload_identity_provider_resource'],
        may: { project_id: projectOf, token_lifetime_seconds: () => 3600 },
      },
      { objectType: 'GCP', choice: 'SERVICE_ACCOUNT_KEY', needs: ['gcp_credentials'] },
    ],
    fields: {
      gcp_credentials: Maybe(Secret(65_536)),
      service_account_email: Line(),
      workload_identity_provider_resource: Line(),
      project_id: Line(),
      token_lifetime_seconds: Maybe(Whole(600, 43_200)),
    },
  },
  {
    path: 'scaleway',
    word: 'Scaleway',
    vendor: 'SCW',
    forms: [
      {
        objectType: 'SCW',
        needs: ['scaleway_access_key', 'scaleway_secret_key', 'scaleway_project_id', 'scaleway_organization_id'],
      },
    ],
    fields: {
      scaleway_access_key: Line(),
      scaleway_secret_key: Maybe(Secret(4096)),
      scaleway_project_id: Line(),
      scaleway_organization_id: Line(),
    },
  },
  {
    path: 'onPremise',
    word: 'OnPremise',
    vendor: 'ON_PREMISE',
    forms: machineForms,
    formOf: machineFormOf,
    around: checkedMachine,
    fields: machineFields,
  },
]

/** The form that a request selects, or that its fields match, or that the row already has. */
const formOf = ({ choose, forms, alias }: Provider, sent: Spec, previous: Change['previous']): Form => {
  if (choose === undefined) return forms[0]!
  const said = sent[choose] as string | undefined
  const chosen = said === undefined ? undefined : (alias?.[said] ?? said)
  const known = previous === null ? undefined : previous.spec[choose]
  return (
    forms.find(({ choice }) => choice === chosen) ??
    forms.find(({ needs }) => needs.every((name) => isGiven(sent[name]))) ??
    forms.find(({ choice }) => choice === known) ??
    forms.at(-1)!
  )
}

/**
 * Keeps the fields of a configuration that its form has; throws for required ones that neither the request nor the row
 * has.
 */
const complete =
  (provider: Provider) =>
  (body: Spec, context: Context, { previous }: Change): Spec => {
    if (context.parts.settings.clusterModules?.[provider.vendor as ModuleProvider] === undefined)
      noteUnreadFields(context, null, Type.Object<TProperties>(fieldsOf(provider)))
    const form = provider.formOf?.(body, context.body, previous?.sealed) ?? formOf(provider, context.body, previous)
    const missing = form.needs.find((name) => !isGiven(context.body[name] ?? body[name] ?? previous?.sealed[name]))
    if (missing !== undefined) throw invalidField(`/${missing}`, 'is required for this kind of credentials')
    const needed = form.needs.flatMap((name) => (body[name] === undefined ? [] : [[name, body[name]]]))
    const optional = Object.entries(form.may ?? {}).map(([name, instead]) => [name, body[name] ?? instead(body)])
    return {
      name: body.name,
      object_type: form.objectType,
      ...(provider.choose === undefined ? {} : { [provider.choose]: form.choice }),
      ...Object.fromEntries([...needed, ...optional]),
    }
  }

const kindOf = ({ path }: Provider): string => `${path.toLowerCase()}_credentials`

const unused = 'this server does not log in with it.'

const forLogin = 'the [module](cloud-clusters.md) of a MANAGED cluster logs in with it; without one it is only stored.'

const fieldsOf = ({ choose, vendor, forms, alias, around, fields }: Provider): Record<string, TSchema> => {
  if (around !== undefined) return fields
  const choices = [...forms.map(({ choice }) => choice!), ...Object.keys(alias ?? {})]
  const chosen = choose === undefined ? {} : { [choose]: Maybe(OneOf(choices)) }
  const ofLogin = loginFields(vendor as ModuleProvider)
  const used = Object.entries(fields).map(([name, schema]) => [
    name,
    ofLogin.includes(name) ? ForModule(schema, forLogin) : Recorded(schema, unused),
  ])
  return { ...AllRecorded(chosen, unused), ...Object.fromEntries(used) }
}

const recordOf = ({ forms }: Provider): Record<string, TSchema> => ({
  object_type: OneOf([...new Set(forms.map(({ objectType }) => objectType))]),
})

const operationsOf = (provider: Provider): Operation[] => {
  const { path, word } = provider
  const { operations } = resource({
    kind: kindOf(provider),
    area: 'resources',
    // These spend an account's money: only admins may set them.
    scopes: { create: 'Admin', edit: 'Admin' },
    parent: { kind: 'organization', param: 'organizationId' },
    tag: 'Cloud Provider Credentials',
    words: [`credentials of ${word}`, `credentials of ${word}`],
    collection: `/organization/{organizationId}/${path}/credentials`,
    item: `/organization/{organizationId}/${path}/credentials/{credentialsId}`,
    param: 'credentialsId',
    ids: {
      list: `list${word}Credentials`,
      create: `create${word}Credentials`,
      read: `get${word}Credentials`,
      edit: `edit${word}Credentials`,
      remove: `delete${word}Credentials`,
    },
    reads: 'sensitive',
    spec: Type.Object<TProperties>({ name: Name(), ...fieldsOf(provider) }),
    record: recordOf(provider),
    columns: {},
    validate: complete(provider),
    ...(provider.around === undefined ? {} : { around: provider.around }),
    audit: { target: 'ORGANIZATION', subTarget: 'CLOUD_PROVIDER_CREDENTIALS' },
    onDelete: refuseInUse('credentials_in_use', 'A cluster still uses these credentials: change or delete it first.'),
  })
  return operations
}

const record = recordSql({})
const kinds = providers.map((provider) => `'${kindOf(provider)}'`).join(', ')
// Providers without credentials of their own use those of ON_PREMISE, and strict clients know no other word for them.
const listedVendors = providers.map(({ vendor }) => `'${vendor}'`).join(', ')
const clustersSql = `(select coalesce(json_agg(json_build_object('id', u.id, 'name', u.name,
    'cloud_provider', case when u.spec ->> 'cloud_provider' in (${listedVendors}) then u.spec ->> 'cloud_provider'
      else 'ON_PREMISE' end) order by u.created_at, u.id), '[]') from ${usersOfN} and u.kind = 'cluster')`

const openFields = providers.flatMap((provider) => {
  const secret = secretPaths(Type.Object<TProperties>(provider.fields))
  return Object.entries(fieldsOf(provider)).filter(([name]) => !secret.includes(name))
})

const credential = Type.Object({
  id: Uuid(),
  name: Text(),
  ...(Object.fromEntries(openFields) as Record<string, TSchema>),
  object_type: OneOf([...new Set(providers.flatMap(({ forms }) => forms.map(({ objectType }) => objectType)))]),
})

const listAll = operation({
  id: 'listOrganizationCredentials',
  ...reading,
  path: '/organization/{organizationId}/credentials',
  tag: 'Organization Main Calls',
  summary: 'List the credentials of all providers and the clusters that use them',
  area: 'resources',
  reads: 'sensitive',
  owner: organizationInPath,
  answer: Results(
    Type.Object({
      credential,
      clusters: Type.Array(
        Type.Object({ id: Uuid(), name: Text(), cloud_provider: OneOf(providers.map(({ vendor }) => vendor)) }),
      ),
    }),
  ),
  run: ({ db, node }) =>
    answerFrom(
      db,
      `select '{"results":' || coalesce(json_agg(json_build_object('credential', ${record.text}::json,
         'clusters', ${clustersSql}) order by n.created_at, n.id)::text, '[]') || '}' as text
       from node n where n.organization_id = $1 and n.parent_id = $1 and n.kind in (${kinds})`,
      [node.id],
    ),
})

export const credentialsOperations: Operation[] = [...providers.flatMap(operationsOf), listAll]
