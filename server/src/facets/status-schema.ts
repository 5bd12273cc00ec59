/** The public records of statuses, as schemas. */
import Type from 'typebox'
import { Flag, Maybe, Nullable, OneOf, Open, Text, Timestamp, Uuid, Whole } from '../api/operations/schema.ts'
import { versionChoices } from '../deployments/deployments.ts'
import { absent, ahead, allKinds, type Kind, kinds, type StatusList } from '../kinds.ts'
import { words } from '../lib/words.ts'
import { versionChoiceWords } from './plan-schema.ts'

export const states = words(
  'BUILDING BUILD_ERROR CANCELED CANCELING DELETED DELETE_ERROR DELETE_QUEUED DELETING DEPLOYED DEPLOYING',
  'DEPLOYMENT_ERROR DEPLOYMENT_QUEUED EXECUTING QUEUED READY RECAP RESTARTED RESTARTING RESTART_ERROR',
  'RESTART_QUEUED STOPPED STOPPING STOP_ERROR STOP_QUEUED UNAVAILABLE WAITING_DELETING WAITING_RESTARTING',
  'WAITING_RUNNING WAITING_STOPPING',
)

const deploymentStatuses = ['NEVER_DEPLOYED', 'OUT_OF_DATE', 'UP_TO_DATE']
export const origins = ['API', 'CLI', 'CONSOLE', 'GIT', 'QOVERY_INTERNAL', 'SKILL', 'TERRAFORM_PROVIDER']

export const StatusDetails = Type.Object(
  {
    action: OneOf(['DEPLOY', 'DELETE', 'RESTART', 'STOP', 'UNKNOWN']),
    status: OneOf(['QUEUED', 'ONGOING', 'SUCCESS', 'ERROR', 'EXECUTING', 'CANCELED', 'CANCELING', 'NEVER']),
    sub_action: OneOf([
      'NONE',
      'TERRAFORM_PLAN_ONLY',
      'TERRAFORM_PLAN_AND_APPLY',
      'TERRAFORM_DESTROY',
      'TERRAFORM_FORCE_UNLOCK_STATE',
      'TERRAFORM_MIGRATE_STATE',
    ]),
  },
  { title: 'StatusDetails' },
)

const Steps = Type.Object({
  total_duration_sec: Nullable(Whole(0)),
  total_computing_duration_sec: Whole(0),
  details: Type.Array(
    Type.Object({ step_name: Maybe(Text()), status: Maybe(Text()), duration_sec: Maybe(Nullable(Whole(0))) }),
  ),
})

const ErrorTold = Type.Object(
  { code: Text(), message: Text(4000) },
  {
    title: 'StatusError',
    description:
      'Why the last deployment failed, what it waits for, or the present problem of the service, in one sentence. Absent while there is none.',
  },
)

const Restarts = Type.Object(
  {
    restart_count: Whole(0),
    exit_code: Whole(0),
    oom_killed: Flag(),
    last_exit_at: Timestamp(),
    message: Text(4000),
  },
  {
    title: 'StatusRestarts',
    description: 'How an instance of the running version ended last, and how often any did. Absent if none did.',
  },
)

const Scaling = Type.Object(
  {
    running_instances: Whole(0),
    minimum: Whole(0),
    maximum: Whole(0),
    asleep: Flag(),
    message: Maybe(Text()),
  },
  {
    title: 'StatusScaling',
    description:
      'The present target number of instances, between the deployed minimum and maximum. Asleep: none, until the next request. Absent for services with a fixed number.',
  },
)

const fields = (stateValues: readonly string[]) => ({
  id: Uuid(),
  state: OneOf(stateValues),
  service_deployment_status: OneOf(deploymentStatuses),
  is_part_last_deployment: Flag(),
  status_details: StatusDetails,
  deployment_request_id: Nullable(Uuid()),
  deployment_requests_count: Whole(0),
  last_deployment_date: Maybe(Timestamp()),
  execution_id: Maybe(Text()),
  steps: Maybe(Steps),
  deployment_state: OneOf(states),
  running_state: Text(),
  error: Maybe(ErrorTold),
  restarts: Maybe(Restarts),
  scaling: Maybe(Scaling),
})

export const Status = Type.Object(fields(states), { title: 'Status' })

/** The only status that can use the running vocabulary. */
export const StatusOfEither = Type.Object(fields([...states, 'RUNNING', 'ERROR']), { title: 'ApplicationStatus' })

/** A status, plus what the specification adds in the response of a deploy that does something. */
export const AcceptedStatus = Type.Object(
  {
    ...fields(states),
    status: Maybe(OneOf(['QUEUED'])),
    version_choice: Maybe(OneOf(versionChoices, { description: versionChoiceWords })),
    application_id: Maybe(Uuid()),
    created_at: Maybe(Timestamp()),
  },
  { title: 'AcceptedStatus' },
)

/** The status of an environment; actions on one also return the fields of a service's status. */
const environmentFields = {
  id: Uuid(),
  state: OneOf(states),
  last_deployment_date: Nullable(Timestamp()),
  last_deployment_state: OneOf(states),
  last_deployment_id: Nullable(Text()),
  total_deployment_duration_in_seconds: Nullable(Whole(0)),
  origin: Maybe(OneOf(origins)),
  triggered_by: Nullable(Text()),
  deployment_status: OneOf(deploymentStatuses),
  deployment_request_id: Nullable(Uuid()),
  metrics: Nullable(Type.Array(Open())),
  error: Maybe(ErrorTold),
}

export const EnvironmentStatus = Type.Object(environmentFields, { title: 'EnvironmentStatus' })

export const AcceptedEnvironmentStatus = Type.Object(
  {
    ...environmentFields,
    service_deployment_status: OneOf(deploymentStatuses),
    is_part_last_deployment: Flag(),
    status_details: StatusDetails,
    deployment_requests_count: Whole(0),
    execution_id: Maybe(Text()),
    status: Maybe(OneOf(['QUEUED'])),
    version_choice: Maybe(
      OneOf(versionChoices, { description: `${versionChoiceWords} Absent if services differ in it.` }),
    ),
    created_at: Timestamp(),
  },
  { title: 'AcceptedEnvironmentStatus' },
)

const Statuses = () => Type.Array(Status)

/** In the order of their publication. */
const listed = ahead(['application', 'container', 'job'], allKinds)

/** An entry for each list of statuses; null is the kind of the list that is always empty. */
export const byStatusList = <T>(make: (kind: Kind | null) => T): Record<StatusList, T> => {
  const lists = listed.map((kind) => [kinds[kind].plural, make(kind)])
  return Object.fromEntries([...lists, [absent.plural, make(null)]]) as Record<StatusList, T>
}

const byType = byStatusList(Statuses)

export const EnvironmentStatuses = Type.Object(
  { environment: EnvironmentStatus, ...byType },
  { title: 'EnvironmentStatuses' },
)

export const EnvironmentStatusesWithStages = Type.Object(
  {
    environment: EnvironmentStatus,
    stages: Type.Array(
      Type.Object({
        ...byType,
        stage: Type.Object({
          id: Uuid(),
          name: Text(),
          description: Text(2048),
          status: OneOf(['QUEUED', 'ONGOING', 'DONE', 'ERROR', 'SKIPPED', 'CANCELED']),
          steps: Maybe(Open()),
        }),
      }),
    ),
    pre_check_stage: Type.Object({
      status: OneOf(['SUCCESS', 'ERROR', 'CANCEL', 'SKIP']),
      total_duration_sec: Whole(0),
    }),
  },
  { title: 'EnvironmentStatusesWithStages' },
)
