/** Applications: built from a git repository, run on the environment's cluster. */
import { arch, cpus, totalmem } from 'node:os'
import Type from 'typebox'
import type { Context, Operation } from '../api/operation.ts'
import { type Change, resource, type Spec } from '../api/resource.ts'
import { Computed, Flag, List, Maybe, Name, Nullable, OneOf, Open, Ref, Reference, Text, Whole } from '../api/schema.ts'
import type { DeployableKind } from '../deployments/deployments.ts'
import { readGitCredentials } from '../deployments/git-credentials.ts'
import { deployable } from '../facets/deployable.ts'
import { history } from '../facets/history.ts'
import { serviceLinks } from '../facets/links.ts'
import { logs } from '../facets/logs.ts'
import { invalidField } from '../lib/errors.ts'
import {
  completeGitRepository,
  GitRepository,
  GitRepositoryRequest,
  type GitRepositorySpec,
  insidePath,
  type KeptCommit,
  viewGitRepository,
} from './git-source.ts'
import { writeRoutes } from './hosts.ts'
import {
  checkProbes,
  completePorts,
  completeStorage,
  Healthchecks,
  type KeptHealthchecks,
  type Port,
  Ports,
  readyTimeoutMs,
  Storage,
  type StorageItem,
  toProbe,
  wordsOf,
  workloadPorts,
} from './service-parts.ts'

const stopGraceMs = 10_000
const headTimeoutMs = 10_000
const defaultIcon = 'app://slipway/application'
const serviceTypes = ['APPLICATION', 'DATABASE', 'CONTAINER', 'JOB', 'HELM', 'TERRAFORM', 'ARGOCD_APP']
const architectures = ['AMD64', 'ARM64']

/** What the engine of this machine can give one service. */
const maximumCpu = cpus().length * 1000
const maximumMemory = Math.floor(totalmem() / 2 ** 20)
const ownArchitecture = arch() === 'arm64' ? 'ARM64' : 'AMD64'

const spec = Type.Object({
  name: Name(),
  description: Maybe(Nullable(Text(2048))),
  git_repository: GitRepositoryRequest(),
  build_mode: Maybe(OneOf(['DOCKER'], { default: 'DOCKER' })),
  dockerfile_path: Maybe(Nullable(Text(1024, { default: 'Dockerfile' }), { default: 'Dockerfile' })),
  docker_target_build_stage: Maybe(Nullable(Text(128, { pattern: '^[A-Za-z0-9][A-Za-z0-9_.-]*$' }))),
  cpu: Maybe(Whole(10, 1_000_000, { default: 500 })),
  memory: Maybe(Whole(6, 100_000_000, { default: 512 })),
  gpu: Maybe(Whole(0, 1000, { default: 0 })),
  ephemeral_storage_in_gib: Maybe(Whole(0, 65_536)),
  cpu_architecture: Maybe(Nullable(OneOf(architectures))),
  min_running_instances: Maybe(Whole(0, 100, { default: 1 })),
  max_running_instances: Maybe(Whole(-1, 1000, { default: 1 })),
  healthchecks: Maybe(Healthchecks({ default: {} })),
  auto_preview: Maybe(Flag({ default: true })),
  auto_deploy: Maybe(Nullable(Flag(), { default: false })),
  ports: Maybe(Ports()),
  storage: Maybe(Storage()),
  arguments: Maybe(List(Text(4096), 200, { default: [] })),
  entrypoint: Maybe(Nullable(Text(4096))),
  annotations_groups: Maybe(List(Type.Object({ id: Ref('annotations_group') }), 50, { default: [] })),
  labels_groups: Maybe(List(Type.Object({ id: Ref('labels_group') }), 50, { default: [] })),
  icon_uri: Maybe(Text(2048, { default: defaultIcon, minLength: 1 })),
  autoscaling: Maybe(Nullable(Open())),
})

interface ApplicationSpec {
  name: string
  git_repository: GitRepositorySpec
  dockerfile_path: string
  docker_target_build_stage?: string | null
  cpu: number
  memory: number
  min_running_instances: number
  max_running_instances: number
  healthchecks: KeptHealthchecks
  ports: Port[]
  storage: StorageItem[]
  arguments: string[]
  entrypoint?: string | null
}

const refuseBeyondMachine = (body: Spec): void => {
  if (Number(body.cpu) > maximumCpu)
    throw invalidField('/cpu', `must be at most ${maximumCpu}: the cluster has no more processors`)
  if (Number(body.memory) > maximumMemory)
    throw invalidField('/memory', `must be at most ${maximumMemory}: the cluster has no more memory`)
  if (Number(body.gpu) > 0) throw invalidField('/gpu', 'needs a cluster with GPUs; the local one has none')
  if (typeof body.cpu_architecture === 'string' && body.cpu_architecture !== ownArchitecture)
    throw invalidField('/cpu_architecture', `needs a cluster of that architecture; the local one is ${ownArchitecture}`)
  if (body.autoscaling !== undefined && body.autoscaling !== null)
    throw invalidField('/autoscaling', 'needs a Kubernetes cluster with KEDA; set min_running_instances instead')
}

const refuseBadInstances = ({ min_running_instances: min, max_running_instances: max }: Spec): void => {
  if (Number(max) !== -1 && Number(min) > Number(max))
    throw invalidField('/min_running_instances', 'must not be more than max_running_instances')
}

/** Checks and completes a whole configuration. */
const complete = (body: Spec, change: Change): Spec => {
  refuseBeyondMachine(body)
  refuseBadInstances(body)
  const before = (change.previous?.spec ?? {}) as Partial<ApplicationSpec>
  const ports = completePorts(body.ports ?? [], before.ports ?? [])
  checkProbes((body.healthchecks ?? {}) as KeptHealthchecks, ports)
  return {
    ...body,
    git_repository: completeGitRepository(body.git_repository, before.git_repository),
    dockerfile_path: insidePath('/dockerfile_path', (body.dockerfile_path as string | null) ?? 'Dockerfile'),
    auto_deploy: body.auto_deploy === true,
    ports,
    storage: completeStorage(body.storage ?? [], before.storage ?? []),
  }
}

const view = (record: Spec): Spec => {
  const { deployed_commit: commit, git_token_name: tokenName, autoscaling: _, ...rest } = record
  const repository = rest.git_repository as GitRepositorySpec
  return {
    ...rest,
    description: rest.description ?? '',
    git_repository: viewGitRepository(repository, commit as KeptCommit | null, tokenName as string | null),
    maximum_cpu: maximumCpu,
    maximum_memory: maximumMemory,
    maximun_gpu: 0,
    maximum_gpu: 0,
    annotations_groups: [],
    labels_groups: [],
    service_type: 'APPLICATION',
  }
}

const application = resource({
  kind: 'application',
  parent: { kind: 'environment', param: 'environmentId' },
  nameScope: 'service',
  tag: 'Application Main Calls',
  words: ['an application', 'applications'],
  collection: '/environment/{environmentId}/application',
  item: '/application/{applicationId}',
  param: 'applicationId',
  ids: { list: 'listApplication', create: 'createApplication', read: 'getApplication', edit: 'editApplication' },
  spec,
  record: {
    environment: Computed(Reference()),
    git_repository: Computed(GitRepository()),
    healthchecks: Healthchecks(),
    icon_uri: Text(2048),
    service_type: Computed(OneOf(serviceTypes)),
    maximum_cpu: Maybe(Computed(Whole(0))),
    maximum_memory: Maybe(Computed(Whole(0))),
    maximun_gpu: Maybe(Computed(Whole(0))),
    maximum_gpu: Maybe(Computed(Whole(0))),
    annotations_groups: Maybe(Computed(Type.Array(Open()))),
    labels_groups: Maybe(Computed(Type.Array(Open()))),
  },
  columns: {
    environment: `json_build_object('id', n.parent_id)`,
    deployed_commit: `(select r.commit from service_state s join release r on r.id = s.current_release_id
      where s.service_id = n.id)`,
    git_token_name: `(select t.name from node t where t.id = (n.spec -> 'git_repository' ->> 'git_token_id')::uuid)`,
  },
  validate: (body, _context, change) => complete(body, change),
  view,
  async written(tx, written, context, change) {
    const { organizationId } = context.principal
    const service = { id: change.id, name: written.name, organizationId, environmentId: change.parent.id }
    if (change.previous === null)
      await tx.query(
        `insert into service_state (service_id, environment_id, organization_id, kind) values ($1, $2, $3, 'application')`,
        [service.id, service.environmentId, organizationId],
      )
    await writeRoutes(tx, service, written.ports as Port[])
  },
  audit: { target: 'APPLICATION' },
})

/** Looks the branch's head up, so that reads can answer it before anything is deployed. */
const noteHead = async ({ parts, principal }: Context, id: string): Promise<void> => {
  const [row] = await parts.database.query<{ git: GitRepositorySpec }>(
    `select spec -> 'git_repository' as git from node where id = $1`,
    [id],
  )
  if (row === undefined || row.git.head_commit_id !== undefined) return
  const { url, branch, git_token_id: tokenId } = row.git
  const credentials =
    tokenId === null
      ? {}
      : { credentials: await readGitCredentials(parts.database, parts.sealer, principal.organizationId, tokenId) }
  const head = await parts.builder.head({ url, branch, ...credentials } as never, headTimeoutMs)
  if (head === null) return
  await parts.database.query(
    `update node set spec = jsonb_set(spec, '{git_repository,head_commit_id}', to_jsonb($2::text))
     where id = $1 and spec -> 'git_repository' ->> 'url' = $3 and spec -> 'git_repository' ->> 'branch' = $4`,
    [id, head, url, branch],
  )
}

/** After a create or an edit, in the background: the answer does not wait for a git host. */
const notingHead = (operation: Operation): Operation => ({
  ...operation,
  async run(context) {
    const record = (await operation.run!(context)) as { id: string }
    noteHead(context, record.id).catch((error: unknown) =>
      context.parts.log.debug({ err: error }, 'the head of a branch could not be read'),
    )
    return record
  },
})

const writes = new Set(['createApplication', 'editApplication'])

/** Every service of an environment with its whole record; today these are applications. */
const listServices: Operation = {
  ...application.operations.find((operation) => operation.id === 'listApplication')!,
  id: 'listServicesByEnvironmentId',
  path: '/environment/{environmentId}/services',
  tag: 'Environment Main Calls',
  summary: 'List all services of an environment',
}

const self = { kind: 'application', param: 'applicationId', words: 'an application' }

export const applicationOperations: Operation[] = [
  ...application.operations.map((operation) => (writes.has(operation.id) ? notingHead(operation) : operation)),
  listServices,
  ...deployable({
    ...self,
    tags: { actions: 'Application Actions', main: 'Application Main Calls' },
    ids: {
      deploy: 'deployApplication',
      redeploy: 'redeployApplication',
      restart: 'rebootApplication',
      stop: 'stopApplication',
      remove: 'deleteApplication',
      status: 'getApplicationStatus',
    },
    speaksRunning: true,
  }),
  ...history({
    ...self,
    tag: 'Application Deployment History',
    ids: { old: 'listApplicationDeploymentHistory', new: 'listApplicationDeploymentHistoryV2' },
  }),
  ...logs({
    ...self,
    tag: 'Application Logs',
    ids: { list: 'listApplicationLog', stream: 'streamApplicationLog' },
  }),
  serviceLinks({ ...self, id: 'listApplicationLinks', tag: 'Application Main Calls' }),
]

/** What the deployment engine asks of an application's configuration. Pure. */
export const applicationKind: DeployableKind = {
  kind: 'application',
  serviceType: 'APPLICATION',
  stage: 3,
  build(kept) {
    const {
      git_repository: git,
      dockerfile_path: dockerfilePath,
      docker_target_build_stage: stage,
    } = kept as unknown as ApplicationSpec
    return {
      git: { url: git.url, branch: git.branch, gitTokenId: git.git_token_id },
      rootPath: git.root_path,
      dockerfilePath,
      targetStage: stage ?? null,
    }
  },
  workload(kept) {
    const application = kept as unknown as ApplicationSpec
    const { ports } = application
    const readiness = toProbe(application.healthchecks.readiness_probe, ports)
    return {
      entrypoint: wordsOf(application.entrypoint),
      arguments: application.arguments.length > 0 ? application.arguments : null,
      cpuMillicores: application.cpu,
      memoryMb: application.memory,
      instances: application.min_running_instances,
      ports: workloadPorts(ports),
      volumes: application.storage.map(({ id, mount_point: mountPath, size: sizeGb }) => ({ id, mountPath, sizeGb })),
      readiness,
      liveness: toProbe(application.healthchecks.liveness_probe, ports),
      readyTimeoutMs: readyTimeoutMs(readiness),
      stopGraceMs,
    }
  },
}
