/**
 * What each acting field becomes on a Docker engine and on a Kubernetes cluster: one table, from which the guide to
 * Kubernetes clusters is made and which `server/test/kubernetes-table.test.ts` checks. Pure.
 */
import { abilityWords } from '../../deployments/request/refusals.ts'
import type { Ability } from '../../runtimes/runtime.ts'
import type { ResourceField } from './field-table.ts'

interface Becomes {
  /** As in docs/guides/fields.md. */
  resources: readonly string[]
  /** Fields, or their beginning before `…`. */
  fields: readonly string[]
  docker: string
  kubernetes: string
  /** The abilities that such a service needs of its cluster, with some values of these fields or with all. */
  needs: readonly Ability[]
}

const words = (text: string): string[] => text.split(/\s+/).filter((word) => word !== '')

/** The letters of the first column. */
const kinds: Record<string, string> = {
  A: 'Application',
  C: 'Container',
  D: 'Database',
  J: 'Job',
  H: 'Helm',
  T: 'Terraform',
  G: 'ArgoCdApp',
}

/** Kinds of services | fields | Docker | Kubernetes | abilities that they need. */
const table = `
ACD | /name | DNS name on the network of the environment | a Service of that name in the namespace of the environment |
JHTG | /name | kept by Slipway | the same |
ACDJHTG | /description /icon_uri | kept and returned | the same |
AC | /ports/*/name /ports/*/id /storage/*/id /storage/*/type | kept and returned | the same |
A | /build_mode | kept and returned | the same |
ACDJ | /annotations_groups… /labels_groups… | labels of the containers | annotations of the pods, and labels where Kubernetes takes the value |
ACDJ | /cpu /memory | limits of the container | requests and limits of the container |
ACJ | /cpu_architecture | must be that of the engine | must be that of the cluster's machines |
AC | /min_running_instances /max_running_instances /hpa.cpu.average_utilization_percent | containers, which Slipway adds and removes as they are used | replicas; with a maximum above the minimum a HorizontalPodAutoscaler, which needs metrics-server in the cluster. A minimum of 0 is refused | sleep
AC | /hpa.memory.average_utilization_percent | only recorded | a metric of the HorizontalPodAutoscaler |
ACJT | /deployment.affinity.node.required | only recorded | nodeSelector of the pods |
AC | /deployment.antiaffinity.pod | only recorded | Requirred: podAntiAffinity by machine, within a version; else pods are spread over machines as well as can be |
AC | /deployment.topology_spread.zone | only recorded | topologySpreadConstraint by zone, within a version |
AC | /deployment.update_strategy.rolling_update.max_surge_percent | only recorded | maxSurge of the Deployment, at least 1% |
AC | /healthchecks/readiness_probe… | asked by Slipway; an instance gets requests while it says yes | readinessProbe, of every kind |
AC | /healthchecks/liveness_probe… | asked by Slipway, which restarts the container | livenessProbe, of every kind |
AC | /ports/*/internal_port | port of the container | port of the container and of its Services |
AC | /ports/*/publicly_accessible /ports/*/is_default | a host of Slipway's router | a host of an Ingress, or an HTTPRoute or GRPCRoute of the Gateway that the cluster's ingress names, and a NetworkPolicy that lets requests in |
AC | /ports/*/protocol | HTTP, gRPC, TCP and UDP through the router | HTTP through the Ingress or the Gateway, TCP and UDP through a Service of the type LoadBalancer. A public gRPC port is refused unless the cluster's ingress has a gateway or grpc_annotations | grpc tcp-ports udp-ports
AC | /ports/*/external_port | port of the router | port of the LoadBalancer |
AC | /ports/*/public_path | prefix at the router | path of the Ingress or HTTPRoute |
AC | /ports/*/public_path_rewrite | prefix that the program sees | URLRewrite of the HTTPRoute; refused without a gateway, unless it is the public_path | path-rewrites
ACH | /domain | a host of the router | a host of the Ingress; Slipway checks that its name leads there. For a chart: a host that its own Ingress and routes may name; they may name no other |
ACH | /generate_certificate /use_cdn /certificate /private_key | certificate of the router | the certificates are the ingress's own: cert-manager's issuer orders them for all hosts, or the ingress has one. Requesting or uploading a certificate where the ingress orders none is a 400 |
AC | /storage/*/size /storage/*/mount_point | volume | PersistentVolumeClaim (ReadWriteOnce) of a StatefulSet, of the StorageClass of the cluster's advanced setting storageclass.fast_ssd, else of its default. A deploy lets it grow where that class allows it; it never shrinks | volumes
ACJ | /arguments /entrypoint /schedule/on_start… /schedule/on_stop… /schedule/on_delete… | command of the container | command and args of the container |
J | /schedule/cronjob/arguments /schedule/cronjob/entrypoint | command of the container | command and args of the container |
J | /schedule/cronjob/timezone /schedule/cronjob/scheduled_at /cronjob… | Slipway's clock starts a container | Slipway's clock starts a Job; there is no CronJob |
J | /max_nb_restart | a new container for each attempt | a new Job for each attempt |
J | /max_duration_seconds | the container is stopped | activeDeadlineSeconds |
AJ | /git_repository… /source/docker… /dockerfile_path /docker_target_build_stage /build.… | built by the engine, and kept there | built by a Docker engine (this machine's, or a Docker cluster of the organization), and pushed to the cluster's container_registry_id: pods name the digest. Without a registry refused |
CJ | /image_name /tag /registry_id /image_tag /source/image… | pulled through Slipway, by digest | pulled by the machines, by the digest that Slipway looked up, with the login as an image pull secret of the namespace |
ACDJT | /deployment.termination_grace_period_seconds | between SIGTERM and SIGKILL | terminationGracePeriodSeconds |
AC | /deployment.update_strategy.type | Recreate: the old version ends first | rolling with maxUnavailable 0; Recreate: the old version ends first |
AC | /deployment.lifecycle… | run in the container | postStart and preStop |
AC | /network.… | how the router treats requests | refused when it is changed and a port is public; sticky sessions alone are possible with sticky_session_annotations, or a gateway with session_persistence, in the cluster's ingress | network-settings sticky-sessions
ACJ | /security.read_only_root_filesystem | read-only root | readOnlyRootFilesystem |
D | /type /version | image; MANAGED: read by the operator's module | image, as the user of its own that the image has; MANAGED: the same as on Docker |
D | /mode | CONTAINER: a container. MANAGED: what the operator's Terraform module makes, run on the engine of Slipway's own machine | CONTAINER: a StatefulSet. MANAGED: the same as on Docker |
D | /instance_type /disk_type /action | only with MANAGED: read by the operator's module; a plan, or the freeing of its state | the same |
D | /storage | volume; MANAGED: read by the operator's module | PersistentVolumeClaim of the StatefulSet, which a deploy lets grow; MANAGED: the same as on Docker | volumes
D | /accessibility | PUBLIC: port of the router; MANAGED: read by the operator's module | PUBLIC: port of a LoadBalancer, whose address the links and the credentials give once it has one; variables name it as services of the environment reach it; MANAGED: the same as on Docker | tcp-ports
H | /source/… /chart_version /git_commit_id | refused | the chart: Slipway fetches it, and helm installs it in the namespace of the environment | charts
H | /values_override… | refused | values of the chart | charts
H | /timeout_sec /allow_cluster_wide_resources | refused | how long helm waits for the chart's objects; whether some may be of the whole cluster | charts
G | /namespace /git_repository… | refused | an Application and an AppProject of the cluster's Argo CD in that namespace, at the commit that Slipway looked up, for the namespace of the environment alone | apps
T | /terraform… /backend… /engine /provider_version… /timeout_sec /job_resources… /action… /dockerfile_fragment… /build.… /id ?force_terraform_action ?resources_only | runs of the tool in containers, whose state Slipway keeps | runs of the tool in Jobs, whose state Slipway keeps: what a run leaves is in a PersistentVolumeClaim of its own until Slipway has read it. The image with the tool and the module is pushed to the cluster's container_registry_id. Without a registry refused |
AJT | /auto_deploy… /auto_preview | Slipway deploys on a push | the same |
C | /auto_deploy | Slipway deploys on a new image | the same |
AJTG | /git_commit_id | commit to deploy | the same |
ACDJH | ?tail | log of the containers | log of the pods |
ACDJHTG | ?toUpdate ?startId ?gitCommitId ?dry_run ?pageSize ?page /release_id ?of ?message ?forceEvent /environment_id | of Slipway itself | the same |
AJT | /mode /type /value | restrictions of pushes, kept by Slipway | the same |
`

const columns = (line: string): Becomes => {
  const [letters = '', fields = '', docker = '', kubernetes = '', needs = ''] = line
    .split('|')
    .map((each) => each.trim())
  return {
    resources: [...letters].map((letter) => kinds[letter]!),
    fields: words(fields),
    docker,
    kubernetes,
    needs: words(needs) as Ability[],
  }
}

export const becomes: readonly Becomes[] = table
  .split('\n')
  .filter((line) => line !== '')
  .map(columns)

const isNamed = (field: string, name: string): boolean =>
  name.endsWith('…') ? field.startsWith(name.slice(0, -1)) : field === name

/** The rows that speak of a field of a service. */
export const rowsOf = ({ resource, field }: Pick<ResourceField, 'resource' | 'field'>): Becomes[] =>
  becomes.filter(({ resources, fields }) => resources.includes(resource) && fields.some((name) => isNamed(field, name)))

export const serviceKinds: readonly string[] = Object.values(kinds)

const code = (names: readonly string[]): string => names.map((name) => `\`${name}\``).join(' ')

/** The part of the guide that is made from the table. `abilities`: of Kubernetes clusters. */
export const kubernetesGuideTable = (abilities: ReadonlySet<Ability>): string => {
  const rows = becomes.map(({ resources, fields, docker, kubernetes }) =>
    [resources.join(', '), code(fields), docker, kubernetes].join(' | '),
  )
  const lacking = (Object.keys(abilityWords) as Ability[]).filter((ability) => !abilities.has(ability))
  return [
    '| services | fields | on a Docker engine | on a Kubernetes cluster |',
    '|---|---|---|---|',
    ...rows.map((row) => `| ${row} |`),
    '',
    'A deployment is refused, and its plan says so, when the cluster',
    '',
    ...lacking.map((ability) => `- ${abilityWords[ability]};`),
    '- names no container registry, but the image of the service is built from a repository.',
  ].join('\n')
}
