/** Features of clusters: requests have an id and a value, responses everything in the catalog. */
import Type, { type TObject } from 'typebox'
import type { Spec } from '../../api/operations/resource.ts'
import { Flag, List, Maybe, Nullable, OneOf, Text, Whole } from '../../api/operations/schema.ts'
import { invalidField } from '../../lib/errors.ts'
import { readForm } from '../forms.ts'
import { type CatalogueFeature, features } from './catalogue-features.ts'

const Subnets = () => List(Text(), 50)
const zones = (prefix: string): string[] => ['a', 'b', 'c'].map((zone) => `${prefix}_zone_${zone}_ids`)
const fieldsOf = <T>(names: readonly string[], make: () => T): Record<string, T> =>
  Object.fromEntries(names.map((name) => [name, make()]))

const optionalSubnets = [
  'documentdb_subnets',
  'elasticache_subnets',
  'rds_subnets',
  'eks_karpenter_fargate_subnets',
].flatMap(zones)

const AwsNetwork = Type.Object({
  aws_vpc_eks_id: Text(255, { minLength: 1 }),
  ...fieldsOf(zones('eks_subnets'), Subnets),
  ...fieldsOf(optionalSubnets, () => Maybe(Nullable(Subnets()))),
  eks_create_nodes_in_private_subnet: Maybe(Flag()),
})

const GcpNetwork = Type.Object({
  vpc_name: Text(255, { minLength: 1 }),
  ...fieldsOf(['vpc_project_id', 'subnetwork_name', 'ip_range_services_name', 'ip_range_pods_name'], () =>
    Maybe(Nullable(Text())),
  ),
  additional_ip_range_pods_names: Maybe(List(Text(), 50)),
  private_nodes: Maybe(Flag()),
})

const days = ['MONDAY', 'TUESDAY', 'WEDNESDAY', 'THURSDAY', 'FRIDAY', 'SATURDAY', 'SUNDAY']
const Limits = () =>
  Maybe(
    Type.Object({
      enabled: Flag(),
      max_cpu_in_vcpu: Whole(0),
      max_memory_in_gibibytes: Whole(0),
      max_gpu: Whole(0, 1_000_000, { default: 0 }),
    }),
  )
const Consolidation = () =>
  Maybe(Type.Object({ enabled: Flag(), days: List(OneOf(days), 7), start_time: Text(32), duration: Text(32) }))
const Requirements = () =>
  List(
    Type.Object({
      key: OneOf(['InstanceFamily', 'InstanceSize', 'Arch', 'SkuFamily', 'SkuVersion']),
      operator: OneOf(['In']),
      values: List(Text(), 500),
    }),
    50,
  )
const Disk = () => ({
  disk_iops: Maybe(Whole(3000, 16_000)),
  disk_throughput: Maybe(Whole(125, 1000)),
})
const After = () => ({ consolidate_after: Maybe(Text(32)) })
const Override = () => Maybe(Type.Object({ consolidation: Consolidation(), limits: Limits(), ...After() }))

const Karpenter = Type.Object({
  spot_enabled: Flag(),
  disk_size_in_gib: Whole(1, 65_536),
  ...Disk(),
  default_service_architecture: OneOf(['AMD64', 'ARM64']),
  qovery_node_pools: Type.Object({
    requirements: Requirements(),
    stable_override: Override(),
    default_override: Maybe(Type.Object({ limits: Limits(), ...After() })),
    gpu_override: Maybe(
      Type.Object({
        consolidation: Consolidation(),
        limits: Limits(),
        requirements: Maybe(Requirements()),
        disk_size_in_gib: Maybe(Whole(1, 65_536)),
        ...Disk(),
        spot_enabled: Maybe(Flag()),
        ...After(),
      }),
    ),
    cronjob_override: Override(),
  }),
})

const NatGateway = Type.Object({
  nat_gateway_type: Maybe(
    Nullable(
      Type.Object({
        provider: OneOf(['gcp', 'scaleway']),
        type: Maybe(OneOf(['VPC-GW-S', 'VPC-GW-M', 'VPC-GW-L', 'VPC-GW-XL'])),
        static_ips_enabled: Maybe(Flag()),
        static_ips_count: Maybe(Whole(1, 1000)),
      }),
    ),
  ),
})

/** The forms of values that are objects, and the field that identifies each. */
const forms: { type: string; discriminator: string; schema: TObject }[] = [
  { type: 'AWS_USER_PROVIDED_NETWORK', discriminator: 'aws_vpc_eks_id', schema: AwsNetwork },
  { type: 'GCP_USER_PROVIDED_NETWORK', discriminator: 'vpc_name', schema: GcpNetwork },
  { type: 'KARPENTER', discriminator: 'qovery_node_pools', schema: Karpenter },
  { type: 'NAT_GATEWAY', discriminator: 'nat_gateway_type', schema: NatGateway },
]

const formOf = (value: object) => forms.find(({ discriminator }) => Object.hasOwn(value, discriminator))

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null

const checkGateway = ({ nat_gateway_type: gateway }: Spec, at: string): void => {
  if (!isObject(gateway)) return
  const { provider } = gateway as Spec
  const needed = provider === 'gcp' ? ['static_ips_enabled', 'static_ips_count'] : ['type']
  const missing = needed.find((name) => (gateway as Spec)[name] === undefined)
  if (missing !== undefined) throw invalidField(`${at}/nat_gateway_type/${missing}`, `is required for ${provider}`)
}

/** The features of a request, each value checked against its form. */
export const readFeatures = (sent: readonly Spec[]): Spec[] =>
  sent.map((feature, index) => {
    const { value } = feature
    if (!isObject(value)) return feature
    const at = `/features/${index}/value`
    const form = formOf(value)
    if (form === undefined)
      throw invalidField(
        at,
        `must contain one of ${forms.map(({ discriminator }) => discriminator).join(', ')} when it is an object`,
      )
    const read = readForm(form.schema, value, at)
    checkGateway(read, at)
    return { ...feature, value: read }
  })

const valueObject = (value: unknown) => {
  if (value === undefined || value === null) return null
  if (isObject(value)) return { type: formOf(value)?.type ?? 'STRING', value }
  return { type: typeof value === 'boolean' ? 'BOOLEAN' : 'STRING', value }
}

/** A feature in responses: with its default value in the catalog, with the cluster's value in a cluster. */
export const viewFeature = (feature: Omit<Partial<CatalogueFeature>, 'value'> & { value?: unknown }): Spec => ({
  id: feature.id,
  title: feature.title ?? '',
  description: feature.description ?? null,
  cost_per_month_in_cents: null,
  cost_per_month: null,
  currency_code: null,
  is_cloud_provider_paying_feature: feature.isPaid ?? false,
  cloud_provider_feature_documentation: feature.documentation ?? null,
  is_platform_paying_feature: false,
  platform_feature_documentation: null,
  is_qovery_paying_feature: false,
  qovery_feature_documentation: null,
  ...(typeof feature.value === 'boolean' ? { value_type: 'BOOLEAN' } : {}),
  value_object: valueObject(feature.value),
  is_value_updatable: feature.isUpdatable ?? false,
  accepted_values: [...(feature.accepted ?? [])],
})

/** A cluster's feature: the catalog entry with the id or name that was sent. */
export const viewClusterFeature = (vendor: unknown, { id, value }: Spec): Spec => {
  const known = features.find((each) => each.id === id || (each.word === id && each.vendor === vendor))
  return { ...viewFeature({ ...known, value }), ...(id === undefined ? {} : { id }) }
}
