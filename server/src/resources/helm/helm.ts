/** Helm services: charts with their values, installed on a Kubernetes cluster by the operator's helm (helm/run.ts). */
import Type from 'typebox'
import type { Context } from '../../api/operations/operation.ts'
import type { Change, Spec } from '../../api/operations/resource.ts'
import {
  Computed,
  Flag,
  List,
  Maybe,
  Nullable,
  OneOf,
  Recorded,
  Refused,
  Text,
  Uuid,
  Whole,
} from '../../api/operations/schema.ts'
import { deployable } from '../../facets/deployable.ts'
import { MaybeChartVersion, MaybeCommitId } from '../../facets/deployment-request.ts'
import { customDomains } from '../../facets/domains/custom-domain.ts'
import { serviceLinks } from '../../facets/domains/links.ts'
import { history } from '../../facets/history.ts'
import { logs } from '../../facets/logs.ts'
import { releases } from '../../facets/releases.ts'
import { advancedSettings } from '../../facets/settings/advanced-settings.ts'
import { deploymentRestrictions } from '../../facets/settings/deployment-restriction.ts'
import { helmSettings } from '../../facets/settings/settings.ts'
import { invalidField } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import { service } from '../service/service.ts'
import {
  completeSource,
  completeValues,
  gitPath,
  repositoryOfChartSql,
  Source,
  SourceRequest,
  type SourceSpec,
  Values,
  ValuesRequest,
  type ValuesSpec,
  valuesTokenSql,
  viewSource,
  viewValues,
} from './chart.ts'
import { type ChartedSpec, chartRun } from './run.ts'

const Selectors = () => List(Type.Object({ key: Text(), value: Text() }), 50, { minItems: 1 })

const portFields = {
  internal_port: Whole(1, 65_535),
  external_port: Maybe(Whole(1, 65_535, { default: 443 })),
  name: Maybe(Text(100)),
  namespace: Maybe(Text(63)),
  is_default: Maybe(Flag()),
  service_name: Maybe(Text(255, { minLength: 1 })),
  service_selectors: Maybe(Selectors()),
}

const PortRequest = () =>
  Type.Object({ ...portFields, id: Maybe(Uuid()), protocol: Maybe(OneOf(['HTTP', 'GRPC'], { default: 'HTTP' })) })

const Port = () =>
  Type.Object({ ...portFields, id: Uuid(), protocol: OneOf(['HTTP', 'GRPC']), port_type: Text(), is_default: Flag() })

interface HelmPort {
  id: string
  name?: string
  internal_port: number
  is_default?: boolean
  service_name?: string
  service_selectors?: unknown[]
}

/** Ports with ids, each with one kind of address inside the cluster, exactly one of them the default. */
const completePorts = (
  sent: readonly (Partial<HelmPort> & { internal_port: number })[],
  before: readonly HelmPort[],
): HelmPort[] => {
  const wanted = sent.find((port) => port.is_default === true) ?? sent[0]
  return sent.map((port, index) => {
    const { service_name: named, service_selectors: selected } = port
    if ((named === undefined) === (selected === undefined))
      throw invalidField(`/ports/${index}`, 'must have exactly one of `service_name` and `service_selectors`')
    return {
      ...port,
      id: before.find(({ id }) => id === port.id)?.id ?? newId(),
      name: port.name ?? `p${port.internal_port}`,
      port_type: named === undefined ? 'SERVICE_SELECTORS' : 'SERVICE_NAME',
      is_default: port === wanted,
    }
  })
}

const ownServices = 'a chart publishes what it makes itself: give it an Ingress by its values.'
const ownArguments =
  'every chart is installed with `--wait` and `--atomic`, and no other argument is given to helm: use `values_override`, `timeout_sec` and `allow_cluster_wide_resources`.'
const notFollowed = 'pushes and previews do not deploy charts: deploy it after a change.'

const fields = {
  source: SourceRequest(),
  values_override: Maybe(ValuesRequest()),
  ports: Recorded(Maybe(List(PortRequest(), 50, { default: [] })), ownServices),
  arguments: Recorded(Maybe(List(Text(4096), 200, { default: [] })), ownArguments),
  timeout_sec: Maybe(
    Whole(0, 86_400, {
      default: 600,
      description: 'How long the chart may take until all of it is ready; then it is taken back. 0: one day.',
    }),
  ),
  allow_cluster_wide_resources: Maybe(
    Flag({
      default: false,
      description:
        "The chart may make objects of the whole cluster, as far as the cluster allows that to this server's login. Otherwise it is refused with their names.",
    }),
  ),
  auto_preview: Recorded(Maybe(Nullable(Flag(), { default: false })), notFollowed),
  auto_deploy: Recorded(Maybe(Flag({ default: false })), notFollowed),
  blueprint_id: Recorded(Maybe(Nullable(Uuid()))),
}

const spec = Type.Object(fields)

type HelmSpec = ChartedSpec & {
  source: SourceSpec
  values_override: ValuesSpec
  ports: HelmPort[]
}

const complete = (body: Spec, _context: Context, { previous }: Change<HelmSpec & Spec>): HelmSpec & Spec => {
  const before = previous?.spec
  return {
    ...(body as ChartedSpec & Spec),
    auto_preview: body.auto_preview === true,
    source: completeSource(body.source as Spec, before?.source as Spec | undefined),
    values_override: completeValues(body.values_override as Partial<ValuesSpec>),
    ports: completePorts(body.ports as HelmPort[], before?.ports ?? []),
  }
}

const deploys = deployable({
  deployQuery: Type.Object({
    forceEvent: Maybe(Refused(OneOf(['DIFF']), 'ask with `dry_run=true` for what a deploy would change.')),
  }),
  deployBody: Type.Object({
    chart_version: MaybeChartVersion(),
    git_commit_id: MaybeCommitId(),
    values_override_git_commit_id: MaybeCommitId(),
  }),
})

export const helm = service({
  kind: 'helm',
  path: 'helm',
  noun: 'Helm',
  nounWithArticle: 'a helm service',
  list: { id: 'listHelms', words: 'helm services' },
  groups: false,
  spec,
  record: {
    source: Computed(Source()),
    values_override: Computed(Values()),
    ports: Computed(Type.Array(Port())),
    arguments: List(Text(4096), 200),
    auto_preview: Flag(),
    auto_deploy: Flag(),
    allow_cluster_wide_resources: Flag(),
  },
  columns: { helm_repository: repositoryOfChartSql, values_token_name: valuesTokenSql },
  git: gitPath,
  validate: complete,
  view: ({ source, values_override: values, helm_repository: repository, values_token_name: token, ...rest }, git) => ({
    ...rest,
    source: viewSource(source, repository, git),
    values_override: viewValues(values, token as string | null),
  }),
  facets: [
    deploys,
    history,
    releases,
    logs,
    serviceLinks,
    advancedSettings(helmSettings),
    customDomains(),
    deploymentRestrictions,
  ],
  deployable: chartRun,
})
