/**
 * The offers of cloud providers, for describing a cluster: regions, instance types, features, managed databases. The
 * data are in this folder, features in `cluster/catalogue-features.ts`; no provider is asked. Any token can read it.
 */
import Type, { type TObject, type TSchema } from 'typebox'
import { type Context, type Operation, operation, ownOrganization, reading } from '../../api/operations/operation.ts'
import { Flag, List, Maybe, OneOf, Results, Text, Whole } from '../../api/operations/schema.ts'
import { notFound } from '../../lib/errors.ts'
import { features } from '../cluster/catalogue-features.ts'
import { viewFeature } from '../cluster/features.ts'
import { Feature, vendors } from '../cluster/schema.ts'
import { databaseTypeNames } from '../kinds/database-types.ts'
import { type InstanceType, instanceTypes } from './instance-types.ts'
import { regions } from './regions.ts'

/**
 * Managed databases of cloud providers, and the instance classes they run on, from the providers' public data sheets. A
 * selection: classes that have been available in nearly every region for years.
 */
const sizes = ['large', 'xlarge', '2xlarge', '4xlarge']
const general = (families: readonly string[]): string[] => [
  ...['micro', 'small', 'medium', 'large', 'xlarge', '2xlarge'].map((size) => `db.t3.${size}`),
  ...['micro', 'small', 'medium', 'large', 'xlarge', '2xlarge'].map((size) => `db.t4g.${size}`),
  ...families.flatMap((family) => sizes.map((size) => `db.${family}.${size}`)),
]
const relational = general(['m5', 'm6g', 'm6i', 'r5', 'r6g', 'r6i'])

const managedDatabaseTypes = {
  AWS: ['MONGODB', 'MYSQL', 'POSTGRESQL', 'REDIS'],
  SCW: ['MYSQL', 'POSTGRESQL', 'REDIS'],
} as const

const scalewayNodes = [
  ...['PICO', 'NANO', 'MICRO'].map((size) => `DB-PLAY2-${size}`),
  ...['S', 'M', 'L', 'XL'].map((size) => `DB-DEV-${size}`),
  ...['XXS', 'XS', 'S', 'M', 'L'].map((size) => `DB-PRO2-${size}`),
  ...['XS', 'S', 'M', 'L', 'XL'].map((size) => `DB-GP-${size}`),
]

const awsNodes: Record<string, readonly string[]> = {
  POSTGRESQL: relational,
  MYSQL: relational,
  MONGODB: [
    'db.t3.medium',
    'db.t4g.medium',
    ...['r5', 'r6g'].flatMap((family) => sizes.map((size) => `db.${family}.${size}`)),
  ],
  REDIS: [
    ...['t3', 't4g'].flatMap((family) => ['micro', 'small', 'medium'].map((size) => `cache.${family}.${size}`)),
    ...['m5', 'm6g', 'r5', 'r6g'].flatMap((family) => sizes.map((size) => `cache.${family}.${size}`)),
  ],
}

const databaseInstanceTypes: Partial<Record<string, Record<string, readonly string[]>>> = {
  AWS: awsNodes,
  SCW: {
    POSTGRESQL: scalewayNodes,
    MYSQL: scalewayNodes,
    REDIS: ['MICRO', 'XS', 'S', 'M', 'L', 'XL'].map((size) => `RED1-${size}`),
  },
}

type Vendor = keyof typeof regions

const Region = Type.Object(
  {
    name: Text(),
    country_code: Text(2),
    country: Text(),
    city: Text(),
    arm_supported: Flag(),
    zones: List(Text()),
  },
  { title: 'ClusterRegion' },
)

const Instance = Type.Object(
  {
    type: Text(),
    name: Text(),
    cpu: Whole(1),
    ram_in_gb: Whole(1),
    bandwidth_in_gbps: Text(16),
    bandwidth_guarantee: OneOf(['UP_TO', 'GUARANTEED']),
    architecture: OneOf(['AMD64', 'ARM64']),
    gpu_info: Maybe(Type.Object({ count: Whole(1), name: Text(), manufacturer: Text(), memory_in_mib: Text(16) })),
    attributes: Type.Object({
      instance_category: Text(),
      instance_generation: Whole(0),
      instance_family: Text(),
      instance_size: Text(),
      meets_resource_reqs: Flag(),
    }),
  },
  { title: 'ClusterInstanceType' },
)

const Named = Type.Object({ name: Text() })
const Provider = Type.Object({ short_name: Text(), name: Text(), logo_url: Text(2048), regions: List(Region) })

/** The minimum that a node needs for the system services of a cluster. */
const isEnough = ({ cpu, ramInGb }: InstanceType): boolean => cpu >= 2 && ramInGb >= 4

const instanceOf = (one: InstanceType) => ({
  type: one.type,
  name: one.type,
  cpu: one.cpu,
  ram_in_gb: one.ramInGb,
  bandwidth_in_gbps: one.bandwidth,
  bandwidth_guarantee: one.guarantee,
  architecture: one.architecture,
  ...(one.gpu === undefined ? {} : { gpu_info: one.gpu }),
  attributes: {
    instance_category: one.category,
    instance_generation: one.generation,
    instance_family: one.family,
    instance_size: one.size,
    meets_resource_reqs: isEnough(one),
  },
})

/** GPU types are left out unless requested. */
const wantedGpu = ({ gpu, with_gpu: withGpu }: Context['query']): unknown =>
  gpu ?? (withGpu === true ? 'INCLUDE' : 'EXCLUDE')

const instancesOf = (vendor: Vendor, query: Context['query'] = {}) => {
  const gpu = wantedGpu(query)
  return instanceTypes[vendor]
    .filter((one) => gpu === 'INCLUDE' || (one.gpu !== undefined) === (gpu === 'ONLY'))
    .filter((one) => query.only_meets_resource_reqs !== true || isEnough(one))
    .map(instanceOf)
}

/** Throws a 404 for a region or zone that the provider does not have. */
const checkPlace = (vendor: Vendor, name: string | undefined, part: 'region' | 'zone'): void => {
  const known: readonly { name: string; zones: string[] }[] = regions[vendor]
  if (!known.some((region) => region.name === name || (part === 'zone' && region.zones.includes(name!))))
    throw notFound()
}

const gpuQuery = Type.Object({
  only_meets_resource_reqs: Maybe(Flag()),
  with_gpu: Maybe(Flag()),
  gpu: Maybe(OneOf(['INCLUDE', 'EXCLUDE', 'ONLY'])),
})

const names = (values: readonly string[]) => values.map((name) => ({ name }))

/** Names of providers in paths. */
const vendorOf = (word: string): Vendor | undefined =>
  (({ AWS: 'AWS', GCP: 'GCP', SCW: 'SCW', SCALEWAY: 'SCW', AZURE: 'AZURE' }) as const)[word.toUpperCase()]

const isVendor = (word: string): boolean => (vendors as readonly string[]).includes(word.toUpperCase())

/** Empty for a provider whose managed databases are not listed here. */
const databaseInstances = ({ cloudProvider = 'AWS', region, databaseType = '' }: Record<string, string>) => {
  const vendor = vendorOf(cloudProvider)
  const type = databaseType.toUpperCase()
  if ((vendor === undefined && !isVendor(cloudProvider)) || !databaseTypeNames.includes(type)) throw notFound()
  if (vendor === undefined) return []
  checkPlace(vendor, region, 'region')
  return names(databaseInstanceTypes[vendor]?.[type] ?? [])
}

const instancesByWord = ({ cloudProvider = '' }: Record<string, string>) => {
  const vendor = vendorOf(cloudProvider)
  if (vendor !== undefined) return instancesOf(vendor)
  // There is no list for these: a cluster there may use any type.
  if (isVendor(cloudProvider)) return []
  throw notFound()
}

const providers: [Vendor, string][] = [
  ['AWS', 'Amazon Web Services'],
  ['SCW', 'Scaleway'],
  ['GCP', 'Google Cloud Platform'],
  ['AZURE', 'Microsoft Azure'],
]

const providersOf = () =>
  providers.map(([short_name, name]) => ({
    short_name,
    name,
    logo_url: `app://slipway/${short_name.toLowerCase()}`,
    regions: regions[short_name],
  }))

interface Entry {
  id: string
  path: string
  summary: string
  item: TSchema
  query?: TObject
  results(params: Record<string, string>, query: Context['query']): readonly unknown[]
}

const ofVendor = (vendor: Vendor, path: string, word: string): Entry[] => [
  {
    id: `list${word}Regions`,
    path: `/${path}/region`,
    summary: `List regions of ${vendor}`,
    item: Region,
    results: () => regions[vendor],
  },
  {
    id: `list${word}Features`,
    path: `/${path}/clusterFeature`,
    summary: `List the features that a cluster on ${vendor} can have`,
    item: Feature,
    results: () => features.filter((feature) => feature.vendor === vendor).map(viewFeature),
  },
]

const instances = (id: string, path: string, vendor: Vendor, part?: 'region' | 'zone', query?: TObject): Entry => ({
  id,
  path,
  summary: `List instance types of ${vendor}`,
  item: Instance,
  ...(query === undefined ? {} : { query }),
  results: (params, asked) => {
    if (part !== undefined) checkPlace(vendor, params[part], part)
    return instancesOf(vendor, asked)
  },
})

const managedTypes = (id: string, path: string, vendor: keyof typeof managedDatabaseTypes): Entry => ({
  id,
  path,
  summary: `List managed databases of ${vendor}`,
  item: Named,
  results: () => names(managedDatabaseTypes[vendor]),
})

const entries: readonly Entry[] = [
  {
    id: 'listCloudProvider',
    path: '/cloudProvider',
    summary: 'List cloud providers and their regions',
    item: Provider,
    results: providersOf,
  },
  ...ofVendor('AWS', 'aws', 'AWS'),
  ...ofVendor('SCW', 'scaleway', 'Scaleway'),
  ...ofVendor('GCP', 'gcp', 'Gcp'),
  ...ofVendor('AZURE', 'azure', 'Azure'),
  instances('listAWSInstanceType', '/aws/instanceType', 'AWS'),
  instances('listAWSEKSInstanceType', '/aws/eks/instanceType/{region}', 'AWS', 'region', gpuQuery),
  instances('listScalewayInstanceType', '/scaleway/instanceType', 'SCW'),
  instances('listScalewayKapsuleInstanceType', '/scaleway/instanceType/{zone}', 'SCW', 'zone'),
  instances('listGcpGkeInstanceType', '/gcp/instanceType/{region}', 'GCP', 'region'),
  instances('listAzureAKSInstanceType', '/azure/aks/instanceType/{region}', 'AZURE', 'region', gpuQuery),
  {
    id: 'listInstanceType',
    path: '/{cloudProvider}/instanceType',
    summary: 'List the instance types of a provider',
    item: Instance,
    results: instancesByWord,
  },
  managedTypes('listAWSManagedDatabaseType', '/aws/managedDatabase/type', 'AWS'),
  managedTypes('listSCWManagedDatabaseType', '/scaleway/managedDatabase/type', 'SCW'),
  {
    id: 'listAWSManagedDatabaseInstanceType',
    path: '/aws/managedDatabase/instanceType/{region}/{databaseType}',
    summary: 'List the instance types for a type of database on AWS',
    item: Named,
    results: databaseInstances,
  },
  {
    id: 'listManagedDatabaseInstanceType',
    path: '/{cloudProvider}/managedDatabase/instanceType/{region}/{databaseType}',
    summary: 'List the instance types for a type of managed database of a provider; empty if none are known',
    item: Named,
    results: databaseInstances,
  },
]

export const catalogueOperations: Operation[] = entries.map(({ item, results, ...entry }) =>
  operation({
    ...entry,
    ...reading,
    tag: 'Cloud Provider',
    area: 'projects',
    owner: ownOrganization,
    answer: Results(item),
    run: async ({ params, query }) => ({ results: [...results(params, query)] }),
  }),
)
