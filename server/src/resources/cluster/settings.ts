/**
 * The advanced settings of a cluster: every key with its type and default. Pure data. They are about cloud providers
 * and Kubernetes: a module that makes a cluster can read them, Kubernetes clusters act on one of them, and the local engine on none.
 */

import Type from 'typebox'
import {
  Flag,
  ForKubernetes,
  ForModule,
  List,
  Nullable,
  OneOf,
  Refused,
  Text,
  Whole,
} from '../../api/operations/schema.ts'
import type { Settings } from '../../facets/settings/settings.ts'

const flag = (value: boolean) => Flag({ default: value })
const text = (value: string) => Text(1024, { default: value })
const whole = (value: number, minimum = 0) => Whole(minimum, 2_147_483_647, { default: value })
const word = (values: readonly string[], value: string) => OneOf(values, { default: value })
const unset = (schema: Parameters<typeof Nullable>[0]) => Nullable(schema, { default: null })
const anywhere = () => List(Text(64, { pattern: '^[0-9a-fA-F.:]+(/\\d{1,3})?$' }), 500, { default: ['0.0.0.0/0'] })
const tags = Type.Unsafe<Record<string, string>>({
  type: 'object',
  additionalProperties: { type: 'string', maxLength: 256 },
  maxProperties: 50,
  default: {},
})

const database = (name: string): Settings => ({
  [`database.${name}.deny_any_access`]: flag(false),
  [`database.${name}.allowed_cidrs`]: anywhere(),
})

/** CPU in millicores and memory in MiB: requests and limits. */
const share = (
  name: string,
  [cpu, cpuLimit, memory, memoryLimit]: readonly [number, number, number, number],
): Settings => ({
  [`loki.${name}.cpu_request_m`]: whole(cpu),
  [`loki.${name}.cpu_limit_m`]: whole(cpuLimit),
  [`loki.${name}.memory_request_mib`]: whole(memory),
  [`loki.${name}.memory_limit_mib`]: whole(memoryLimit),
})

const settings: Settings = {
  'aws.cloudwatch.eks_logs_retention_days': whole(90),
  'aws.vpc.enable_s3_flow_logs': flag(false),
  'aws.vpc.flow_logs_retention_days': whole(365),
  'aws.vpc.enable_nat_gateway_secondary_eip': flag(false),
  'loki.log_retention_in_week': whole(12),
  'loki.deployment_mode': word(['single_binary', 'simple_scalable'], 'single_binary'),
  ...share('single_binary', [200, 1000, 1024, 2048]),
  ...share('write', [200, 500, 512, 1024]),
  ...share('read', [200, 500, 512, 1024]),
  ...share('backend', [200, 500, 512, 1024]),
  'registry.image_retention_time': whole(31_536_000),
  'registry.mirroring_mode': word(['Cluster', 'Service'], 'Service'),
  'cloud_provider.container_registry.tags': tags,
  'load_balancer.size': text('lb-s'),
  'aws.eks.enable_alb_controller': flag(true),
  'aws.eks.enable_efs_addon': flag(false),
  'aws.eks.efs.throughput_mode': word(['bursting', 'elastic', 'provisioned'], 'elastic'),
  'aws.eks.efs.performance_mode': word(['generalPurpose', 'maxIO'], 'generalPurpose'),
  'aws.eks.efs.transition_to_ia': word(
    ['AFTER_1_DAY', 'AFTER_7_DAYS', 'AFTER_14_DAYS', 'AFTER_30_DAYS', 'AFTER_60_DAYS', 'AFTER_90_DAYS', ''],
    '',
  ),
  ...database('postgresql'),
  ...database('mysql'),
  ...database('mongodb'),
  ...database('redis'),
  'aws.iam.admin_group': text('Admins'),
  'aws.eks.ec2.metadata_imds': word(['optional', 'required'], 'required'),
  'aws.eks.ec2.ami': text('AmazonLinux2023'),
  'pleco.resources_ttl': whole(-1, -1),
  'nginx.vcpu.request_in_milli_cpu': whole(200),
  'nginx.vcpu.limit_in_milli_cpu': whole(700),
  'nginx.memory.request_in_mib': whole(768),
  'nginx.memory.limit_in_mib': whole(768),
  'nginx.hpa.cpu_utilization_percentage_threshold': Whole(1, 100, { default: 50 }),
  'nginx.hpa.min_number_instances': whole(2, 1),
  'nginx.hpa.max_number_instances': whole(25, 1),
  'envoy.gateway_api.http_request_timeout_seconds': unset(Whole(0, 86_400)),
  'envoy.gateway_api.http_connection_idle_timeout_seconds': unset(Whole(0, 86_400)),
  'envoy.gateway_api.retry.num_retries': unset(Whole(0, 100)),
  'envoy.gateway_api.retry.retry_on': unset(Text()),
  'envoy.gateway_api.retry.http_status_codes': unset(Text()),
  'envoy.gateway_api.retry.per_try_timeout_seconds': unset(Whole(0, 86_400)),
  'qovery.static_ip_mode': flag(false),
  'k8s.api.allowed_public_access_cidrs': anywhere(),
}

/** Access rules: only recorded, they would protect nothing. */
const protects = /^database\.|^k8s\.api\./

export const clusterSettings: Settings = {
  ...Object.fromEntries(
    Object.entries(settings).map(([key, schema]) => [
      key,
      protects.test(key)
        ? Refused(schema, 'this server does not restrict access to what a cloud provider runs: set it there.')
        : ForModule(schema),
    ]),
  ),
  'storageclass.fast_ssd': ForKubernetes(
    Text(253, { default: '', pattern: '^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?$' }),
    "StorageClass of new volumes; empty: the cluster's default.",
  ),
}
