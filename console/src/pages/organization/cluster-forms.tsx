/** The dialogs that register a cluster and change one: an engine, a Kubernetes cluster, or one at a cloud provider. */
import { useQueries, useQuery } from '@tanstack/react-query'
import { answerOf, client, inPath, pathLike, resultsOf, type Schemas } from '../../api/client.ts'
import { useMay } from '../../ui/place.ts'
import { type FieldSpec, namesOf, type Option, RecordForm, type Values } from '../../ui/record-form.tsx'
import { tell } from '../../ui/toasts.tsx'
import {
  type CredentialsRow,
  credentialFields,
  engineFields,
  kubeconfigField,
  makeCredentials,
  type Provider,
  removeCredentials,
  useCredentials,
} from './credentials.tsx'
import { type Props, useOrganizationList } from './list.ts'

export type Cluster = Schemas['Cluster']

/** The providers where this server can make clusters, by modules of its operator. */
const clouds = {
  AWS: { word: 'AWS', credentials: 'aws' },
  GCP: { word: 'Google Cloud', credentials: 'gcp' },
  AZURE: { word: 'Azure', credentials: 'azure' },
  SCW: { word: 'Scaleway', credentials: 'scaleway' },
} as const satisfies Record<string, { word: string; credentials: Provider }>
type Cloud = keyof typeof clouds

export const cloudOf = ({ kubernetes, cloud_provider: provider }: Cluster): Cloud | null =>
  kubernetes === 'MANAGED' && Object.hasOwn(clouds, provider) ? (provider as Cloud) : null

export const providerWord = (provider: string): string =>
  Object.hasOwn(clouds, provider) ? clouds[provider as Cloud].word : provider

const cloudNames = Object.keys(clouds) as Cloud[]

export type Registering = 'docker' | 'kubernetes' | 'cloud'

const name: FieldSpec = { at: '/name', label: 'Name', isRequired: true }
const description: FieldSpec = { at: '/description', label: 'Description' }

const first: readonly FieldSpec[] = [
  name,
  {
    at: '/region',
    label: 'Region',
    hint: 'Any text that says where it is.',
    isRequired: true,
    initial: 'local',
  },
]

const useRegistryField = (organizationId: string): FieldSpec => {
  const { data } = useOrganizationList('containerRegistry', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/containerRegistry', inPath({ organizationId }))),
  )
  return {
    at: '/container_registry_id',
    label: 'Registry for what is built here',
    kind: 'choice',
    hint: 'Its machines pull from it what this server builds; the login must be allowed to write.',
    options: namesOf(data),
  }
}

/** The fields that a module of the operator can read. */
const machineFields: readonly FieldSpec[] = [
  { at: '/instance_type', label: 'Machine type', placeholder: 't3.large' },
  { at: '/min_running_nodes', label: 'Minimum machines', kind: 'number', initial: 1 },
  { at: '/max_running_nodes', label: 'Maximum machines', kind: 'number', initial: 3 },
  { at: '/disk_size', label: 'Disk per machine (GB)', kind: 'number', initial: 40 },
  {
    at: '/production',
    label: 'For production: its module may duplicate what must not fail',
    kind: 'switch',
  },
]

const newLogin = 'new'

const useRegions = (isWanted: boolean): Partial<Record<Cloud, Option[]>> => {
  const answers = useQueries({
    queries: cloudNames.map((cloud) => ({
      queryKey: ['regions', cloud],
      queryFn: async () => {
        const path = pathLike('/aws/region', 'aws', clouds[cloud].credentials)
        return resultsOf(client.GET(path))
      },
      staleTime: Number.POSITIVE_INFINITY,
      enabled: isWanted,
    })),
  })
  return Object.fromEntries(
    cloudNames.map((cloud, at) => [
      cloud,
      answers[at]!.data?.map((each) => ({ value: each.name, label: `${each.name} (${each.city})` })),
    ]),
  )
}

const useCloudFields = (organizationId: string, isWanted: boolean): readonly FieldSpec[] => {
  const regions = useRegions(isWanted)
  const { data: logins = [] } = useCredentials(organizationId, isWanted)
  const isAt =
    (cloud: Cloud, more?: FieldSpec['when']) =>
    (values: Values): boolean =>
      values['/cloud_provider'] === cloud && (more === undefined || more(values))
  const ofCloud = (cloud: Cloud): readonly FieldSpec[] => {
    const { word, credentials } = clouds[cloud]
    const kept = logins.filter(({ provider }) => provider === credentials)
    const login = `/login/${cloud}`
    const isNew = (values: Values): boolean => values[login] === newLogin
    return [
      {
        at: `/regions/${cloud}`,
        label: `${word} region`,
        isRequired: true,
        when: isAt(cloud),
        ...(regions[cloud] === undefined ? {} : { kind: 'choice' as const, options: regions[cloud] }),
      },
      {
        at: login,
        label: 'Credentials',
        kind: 'choice',
        options: [...namesOf(kept), { value: newLogin, label: 'New ones' }],
        isRequired: true,
        initial: kept[0]?.id ?? newLogin,
        when: isAt(cloud),
      },
      ...credentialFields[credentials].slice(1).map((field) => ({ ...field, when: isAt(cloud, isNew) })),
    ]
  }
  return [
    name,
    {
      at: '/cloud_provider',
      label: 'Provider',
      kind: 'choice',
      options: cloudNames.map((cloud) => ({ value: cloud, label: clouds[cloud].word })),
      isRequired: true,
      initial: 'AWS',
    },
    ...cloudNames.flatMap(ofCloud),
    ...machineFields,
    description,
  ]
}

/** Fields that the response lists as stored without effect: the module of the operator does not read them. */
const unreadIn = (response: Response): string => {
  const fields = (response.headers.get('slipway-not-applied') ?? '').split(/[,;\s]+/).filter((each) => each !== '')
  return fields.length === 0
    ? ''
    : ` Without effect here: ${fields.join(', ').replaceAll('/', ' ').replaceAll('_', ' ').trim()}.`
}

interface Made {
  id: string
  unread: string
}

const create = async (organizationId: string, body: object): Promise<Made> => {
  const asked = client.POST('/organization/{organizationId}/cluster', {
    ...inPath({ organizationId }),
    body: body as never,
  })
  const { id } = await answerOf(asked)
  return { id, unread: unreadIn((await asked).response) }
}

interface Login {
  provider: Provider
  /** The id of existing credentials; else new ones are made from the fields. */
  id?: string | undefined
  fields: Record<string, unknown>
}

/** Credentials that are made for a cluster are deleted when it cannot be registered: they would be forgotten. */
const withLogin = async <T,>(
  organizationId: string,
  { provider, id: kept, fields }: Login,
  work: (id: string) => Promise<T>,
): Promise<T> => {
  const id = kept ?? (await makeCredentials(organizationId, provider, fields))
  try {
    return await work(id)
  } catch (error) {
    if (kept === undefined) await removeCredentials(organizationId, provider, id).catch(() => undefined)
    throw error
  }
}

const registerOwn = (organizationId: string, body: Record<string, unknown>): Promise<Made> => {
  const { name: called, region, container_registry_id: registryId, ...login } = body
  return withLogin(organizationId, { provider: 'onPremise', fields: { name: called, ...login } }, (id) =>
    create(organizationId, {
      name: called,
      region,
      cloud_provider: 'ON_PREMISE',
      kubernetes: 'SELF_MANAGED',
      cloud_provider_credentials: { credentials: { id } },
      ...(registryId === undefined ? {} : { container_registry_id: registryId }),
    }),
  )
}

const registerCloud = (organizationId: string, body: Record<string, unknown>): Promise<Made> => {
  const {
    regions,
    login,
    cloud_provider: cloud,
    ...rest
  } = body as Record<string, unknown> & {
    cloud_provider: Cloud
    regions: Record<string, string>
    login: Record<string, string>
  }
  const provider = clouds[cloud].credentials
  const chosen = login[cloud]
  const names = credentialFields[provider].slice(1).map(({ at }) => at.slice(1))
  const split = (isLogin: boolean) =>
    Object.fromEntries(Object.entries(rest).filter(([field]) => names.includes(field) === isLogin))
  const made = { provider, id: chosen === newLogin ? undefined : chosen, fields: { name: rest.name, ...split(true) } }
  return withLogin(organizationId, made, (id) =>
    create(organizationId, {
      ...split(false),
      cloud_provider: cloud,
      kubernetes: 'MANAGED',
      region: regions[cloud],
      cloud_provider_credentials: { credentials: { id }, region: regions[cloud] },
    }),
  )
}

const words: Record<Registering, { title: string; note: string }> = {
  docker: { title: 'Register a Docker engine', note: '' },
  kubernetes: {
    title: 'Register a Kubernetes cluster',
    note: 'Its account needs rights in every namespace; what is missing is named before anything is stored. It also needs an ingress controller for host names.',
  },
  cloud: {
    title: 'New cluster at a cloud provider',
    note: 'Nothing is made yet, so nothing costs anything yet: plan and deploy it afterwards. It is made by a Terraform module that the operator of this server names for the provider; without one it is only recorded.',
  },
}

interface DialogProps extends Props {
  what: Registering
  onClose(): void
  onRegistered(id: string): void
}

export const RegisterCluster = ({ organizationId, what, onClose, onRegistered }: DialogProps) => {
  const registry = useRegistryField(organizationId)
  const ofCloud = useCloudFields(organizationId, what === 'cloud')
  const fields: Record<Registering, readonly FieldSpec[]> = {
    docker: [...first, ...engineFields.map((field, at) => (at === 0 ? { ...field, isRequired: true } : field))],
    kubernetes: [...first, { ...kubeconfigField, isRequired: true }, registry],
    cloud: ofCloud,
  }
  const { title, note } = words[what]
  return (
    <RecordForm
      key={what}
      title={title}
      button={what === 'cloud' ? 'Create' : 'Register'}
      fields={fields[what]}
      changed={['clusters', 'cluster statuses', 'cluster credentials']}
      onClose={onClose}
      save={async (body) => {
        const { id, unread } = await (what === 'cloud' ? registerCloud : registerOwn)(organizationId, body)
        tell(`${String(body.name)} was registered.${unread}`)
        onRegistered(id)
      }}
    >
      {note === '' ? null : <p className="dim small">{note}</p>}
    </RecordForm>
  )
}

const credentialsField = (provider: Provider, logins: readonly CredentialsRow[]): FieldSpec => ({
  at: '/cloud_provider_credentials/credentials/id',
  label: 'Credentials',
  kind: 'choice',
  hint: 'Others, by which the same cluster is reached. To write their secrets again, use Login.',
  options: namesOf(logins.filter((each) => each.provider === provider)),
})

interface EditProps extends Props {
  cluster: Cluster
  /** True if it runs Kubernetes, however it was made. */
  isKubernetes: boolean
  /** Only administrators may see credentials. */
  logins: readonly CredentialsRow[]
  onClose(): void
}

const useDomain = (clusterId: string, isWanted: boolean) =>
  useQuery({
    queryKey: ['cluster domain', clusterId],
    queryFn: async () =>
      (await answerOf(client.GET('/cluster/{clusterId}/dnsProvider', inPath({ clusterId })))).dns_provider,
    enabled: isWanted,
  })

const domainField: FieldSpec = {
  at: '/domain',
  label: 'Domain of its services',
  hint: "Their host names are below it: its DNS records must lead to the cluster's ingress.",
  isRequired: true,
}

const fieldsOf = ({ cluster, isKubernetes, logins }: EditProps, registry: FieldSpec, hasDomain: boolean) => {
  const cloud = cloudOf(cluster)
  const provider = cloud === null ? 'onPremise' : clouds[cloud].credentials
  const hasLogin = cluster.cloud_provider_credentials?.credentials?.id !== undefined && logins.length > 0
  return [
    name,
    description,
    ...(cloud === null ? [] : machineFields),
    ...(isKubernetes ? [registry] : []),
    ...(hasDomain ? [domainField] : []),
    ...(hasLogin ? [credentialsField(provider, logins)] : []),
  ]
}

export const EditCluster = (props: EditProps) => {
  const { organizationId, cluster, isKubernetes, onClose } = props
  const may = useMay()
  const registry = useRegistryField(organizationId)
  const isAsked = isKubernetes && may('administer')
  const dns = useDomain(cluster.id, isAsked)
  if (isAsked && dns.isPending) return null
  const isCloud = cloudOf(cluster) !== null
  const save = async ({ domain, ...body }: Record<string, unknown>): Promise<void> => {
    const { id: clusterId } = cluster
    if (domain !== undefined)
      await answerOf(
        client.PUT('/cluster/{clusterId}/dnsProvider', {
          params: { path: { clusterId } },
          body: { dns_provider: { provider: 'QOVERY', domain: String(domain) } },
        }),
      )
    const asked = client.PUT('/organization/{organizationId}/cluster/{clusterId}', {
      params: { path: { organizationId, clusterId } },
      body: body as never,
    })
    await answerOf(asked)
    tell(`Saved.${isCloud ? ' The next deployment of the cluster applies it.' : ''}${unreadIn((await asked).response)}`)
  }
  return (
    <RecordForm
      title={`Edit ${cluster.name}`}
      button="Save"
      // The records of another provider do not apply.
      fields={fieldsOf(props, registry, dns.data?.provider === 'QOVERY')}
      record={{ ...cluster, domain: dns.data?.domain }}
      changed={['clusters', 'cluster statuses', 'cluster credentials', 'cluster domain']}
      onClose={onClose}
      save={save}
    >
      {isCloud ? (
        <p className="dim small">A cluster keeps its provider and its region: for others, make a new one.</p>
      ) : null}
    </RecordForm>
  )
}
