/** The parts of a cluster: the fields of a request and of a record, with their ranges and defaults. Pure data. */
import Type, { type TSchema } from 'typebox'
import {
  Computed,
  Flag,
  ForModule,
  List,
  Maybe,
  Name,
  Nullable,
  OneOf,
  Open,
  Ref,
  Reference,
  Text,
  Uuid,
  Whole,
} from '../../api/operations/schema.ts'
import { words } from '../../lib/words.ts'
import { Accesses, AccessRequests } from '../secret-manager/access.ts'

export const vendors = words('AWS SCW GCP DO AZURE OVH CIVO HETZNER ORACLE IBM ON_PREMISE')
export const kubernetesKinds = ['MANAGED', 'SELF_MANAGED', 'PARTIALLY_MANAGED']
export const clusterStates = words(
  'BUILDING BUILD_ERROR CANCELED CANCELING DELETED DELETE_ERROR DELETE_QUEUED DELETING DEPLOYED DEPLOYING',
  'DEPLOYMENT_ERROR DEPLOYMENT_QUEUED DRY_RUN QUEUED READY STOPPED STOPPING STOP_ERROR STOP_QUEUED RESTART_QUEUED',
  'RESTARTING RESTARTED RESTART_ERROR INVALID_CREDENTIALS',
)

const Line = () => Maybe(Text(2048))
const Enabled = () => Type.Object({ enabled: Maybe(Flag({ default: false })) })

const EksAnywhere = Type.Object({
  git_repository: Type.Object({
    url: Text(2048, { minLength: 1 }),
    branch: Maybe(Text()),
    commit_id: Maybe(Text(64)),
    git_token_id: Ref('git_token'),
    provider: Maybe(OneOf(['BITBUCKET', 'GITHUB', 'GITLAB'])),
  }),
  yaml_file_path: Text(2048, { minLength: 1 }),
  cluster_backup: Maybe(
    Type.Object({
      enabled: Maybe(Flag({ default: true })),
      timeout_seconds: Maybe(Whole(1, 86_400, { default: 300 })),
      certs_secret_name: Line(),
      s3: Type.Object({ bucket: Text(), region: Text(), role_arn: Text(2048), key_prefix: Line() }),
    }),
  ),
})

const Charts = Type.Object({
  nginx_parameters: Maybe(
    Type.Object({
      replica_count: Maybe(Whole(0, 1000)),
      default_ssl_certificate: Line(),
      publish_status_address: Line(),
      annotation_metal_lb_load_balancer_ips: Line(),
      annotation_external_dns_kubernetes_target: Line(),
    }),
  ),
  cert_manager_parameters: Maybe(Type.Object({ kubernetes_namespace: Line() })),
  metal_lb_parameters: Maybe(Type.Object({ ip_address_pools: Maybe(List(Text())) })),
  eks_anywhere_parameters: Maybe(EksAnywhere),
})

const Labels = Type.Unsafe<Record<string, string>>({
  type: 'object',
  additionalProperties: { type: 'string', maxLength: 1024 },
  maxProperties: 50,
  'x-anything': true,
})

const Metrics = Type.Object({
  enabled: Maybe(Flag({ default: false })),
  configuration: Maybe(
    Type.Object({
      kind: Maybe(OneOf(['MANAGED_BY_QOVERY'], { default: 'MANAGED_BY_QOVERY' })),
      resource_profile: Maybe(OneOf(['LOW', 'NORMAL', 'HIGH'])),
      cloud_watch_export_config: Maybe(Enabled()),
      high_availability: Maybe(Flag()),
      internal_network_monitoring: Maybe(Enabled()),
      alerting: Maybe(
        Type.Object({
          enabled: Maybe(Flag({ default: false })),
          default_rule_labels: Maybe(Nullable(Labels)),
          spec_config_secret: Line(),
          spec_external_url: Line(),
          config_name: Line(),
        }),
      ),
    }),
  ),
})

/** Credentials and the region they are for; `name` is read from the credentials' own record. */
export const ProviderInfo = Type.Object({
  cloud_provider: Maybe(OneOf(vendors)),
  credentials: Maybe(Type.Object({ id: Maybe(Uuid()), name: Maybe(Text()) })),
  region: Maybe(Text(100)),
})

const FeatureRequest = Type.Object({
  // A uuid of the catalog; existing clients send its name.
  id: Maybe(Text(64, { minLength: 1 })),
  value: Maybe(Type.Union([Text(1024), Flag(), Open(), Type.Null()])),
})

const objectName = '^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$'
const ObjectName = () => Text(253, { pattern: objectName })

/** Keys of Slipway are reserved. */
const Annotations = (description: string) =>
  Maybe(
    Nullable(
      Type.Unsafe<Record<string, string>>({
        type: 'object',
        propertyNames: {
          type: 'string',
          pattern:
            '^(?!slipway\\.)([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$',
        },
        additionalProperties: { type: 'string', maxLength: 2048 },
        maxProperties: 50,
        'x-anything': true,
      }),
      { description },
    ),
  )

const Gateway = Type.Object(
  {
    name: ObjectName(),
    namespace: ObjectName(),
    listener: Maybe(Nullable(ObjectName(), { description: 'One of its listeners; null: all that fit.' })),
    session_persistence: Maybe(
      Flag({
        default: false,
        description:
          'It carries out `sessionPersistence` (experimental channel of the Gateway API), which sticky sessions need.',
      }),
    ),
  },
  {
    description:
      'A Gateway of the cluster whose listeners take routes of all namespaces: hosts become HTTPRoutes and GRPCRoutes in place of Ingresses. Its listeners have the certificates.',
  },
)

const Ingress = Type.Object(
  {
    class_name: Maybe(Nullable(ObjectName(), { description: 'IngressClass; null: the default of the cluster.' })),
    annotations: Annotations('Annotations for every Ingress.'),
    grpc_annotations: Annotations(
      'Annotations for Ingresses of gRPC ports. Null: services with public gRPC ports are refused.',
    ),
    sticky_session_annotations: Annotations(
      'Annotations for Ingresses of services with sticky sessions, which make the controller keep a client with one instance. Null: such services are refused.',
    ),
    load_balancer_annotations: Annotations(
      'Annotations for the Services of the type LoadBalancer of public TCP and UDP ports.',
    ),
    issuer: Maybe(
      Nullable(ObjectName(), {
        description: 'ClusterIssuer of cert-manager, which orders a certificate for each host.',
      }),
    ),
    has_certificate: Maybe(
      Flag({ default: false, description: 'The ingress or gateway has a certificate for all hosts: links are https.' }),
    ),
    gateway: Maybe(Nullable(Gateway)),
  },
  { title: 'ClusterIngress' },
)

export const clusterSpec = Type.Object({
  name: Name(),
  description: Maybe(Text(2048)),
  region: Text(100, { minLength: 1 }),
  cloud_provider: OneOf(vendors),
  cloud_provider_credentials: Maybe(ProviderInfo),
  min_running_nodes: Maybe(ForModule(Whole(0, 10_000, { default: 1 }))),
  max_running_nodes: Maybe(ForModule(Whole(0, 10_000, { default: 1 }))),
  disk_size: Maybe(ForModule(Whole(1, 1_000_000, { default: 40 }))),
  disk_iops: Maybe(ForModule(Whole(3000, 16_000))),
  disk_throughput: Maybe(ForModule(Whole(125, 1000))),
  instance_type: Maybe(ForModule(Text(100))),
  kubernetes: Maybe(OneOf(kubernetesKinds, { default: 'MANAGED' })),
  production: Maybe(ForModule(Flag({ default: false }))),
  is_demo: Maybe(Flag({ default: false })),
  ssh_keys: Maybe(ForModule(List(Text(16_384), 50))),
  features: Maybe(ForModule(List(FeatureRequest, 50))),
  metrics_parameters: Maybe(ForModule(Metrics)),
  infrastructure_charts_parameters: Maybe(ForModule(Charts)),
  keda: Maybe(ForModule(Enabled())),
  labels_groups: Maybe(ForModule(List(Type.Object({ id: Ref('labels_group') }), 50))),
  secret_manager_accesses: Maybe(AccessRequests()),
  ingress: Maybe(
    Nullable(Ingress, {
      description:
        "Of a Kubernetes cluster: how the hosts and ports of services are published, in place of the operator's settings (`SLIPWAY_KUBERNETES_INGRESS_CLASS` …). What is published follows within a minute.",
    }),
  ),
  container_registry_id: Maybe(
    Nullable(Ref('container_registry'), {
      description:
        'Of a Kubernetes cluster: what is built for its services is pushed to this container registry, below the path of its URL. Without one, services with a repository are not deployed there. Docker engines keep what they build.',
    }),
  ),
})

export const Feature = Type.Object(
  {
    id: Maybe(Text(64)),
    title: Text(),
    description: Nullable(Text(2048)),
    cost_per_month_in_cents: Nullable(Whole(0)),
    cost_per_month: Nullable(Type.Number({ minimum: 0, maximum: 1_000_000 })),
    currency_code: Nullable(Text(3)),
    is_cloud_provider_paying_feature: Flag(),
    cloud_provider_feature_documentation: Nullable(Text(2048)),
    is_platform_paying_feature: Flag(),
    platform_feature_documentation: Nullable(Text(2048)),
    is_qovery_paying_feature: Flag(),
    qovery_feature_documentation: Nullable(Text(2048)),
    value_type: Maybe(OneOf(['BOOLEAN'])),
    value_object: Nullable(Open()),
    is_value_updatable: Flag(),
    accepted_values: List(Type.Union([Text(), Flag()])),
  },
  { title: 'ClusterFeature' },
)

export const clusterRecord: Record<string, TSchema> = {
  region: Text(),
  cloud_provider: OneOf(vendors),
  features: List(Feature, 50),
  secret_manager_accesses: Accesses(),
  organization: Computed(Reference()),
  status: Computed(OneOf(clusterStates)),
  deployment_status: Computed(OneOf(['NEVER_DEPLOYED', 'OUT_OF_DATE', 'UP_TO_DATE'])),
  has_access: Computed(Flag()),
  is_default: Computed(Flag()),
  is_demo: Computed(Flag()),
  cpu: Maybe(Computed(Whole(0))),
  memory: Maybe(Computed(Whole(0))),
  estimated_cloud_provider_cost: Maybe(Computed(Whole(0))),
  version: Maybe(Computed(Text())),
  infrastructure_outputs: Maybe(Computed(Nullable(Open()))),
}
