/** The plan of an action as it is answered, and the actions that can be asked for one. */
import Type, { type TObject } from 'typebox'
import { Anything, Flag, Maybe, merge, Nullable, OneOf, Text, Uuid, Whole } from '../api/schema.ts'
import { serviceTypes } from '../kinds.ts'

const longText = () => Text(65_536)

const Move = () => Nullable(Type.Object({ from: Nullable(Text(1024)), to: Nullable(Text(1024)) }))

const Keys = () => Type.Array(longText())

const Changes = Type.Object(
  {
    image: Move(),
    commit: Move(),
    configuration: Type.Array(Type.Object({ field: Text(1024), from: Anything(), to: Anything() })),
    variables: Type.Object(
      { added: Keys(), changed: Keys(), removed: Keys() },
      { description: 'Keys only; a value is never told.' },
    ),
  },
  { title: 'PlannedChanges' },
)

const PlannedService = Type.Object(
  {
    id: Uuid(),
    name: Text(),
    service_type: OneOf(serviceTypes),
    effect: OneOf(['BUILD', 'ROLL_OUT', 'RESTART', 'RUN', 'STOP', 'DELETE', 'UNTOUCHED', 'SKIPPED', 'REFUSED']),
    builds: Flag(),
    downtime: Flag(),
    reason: longText(),
    expected_duration_sec: Nullable(Whole(0)),
    changes: Changes,
  },
  { title: 'PlannedService' },
)

const PlanAnswer = Type.Object(
  {
    environment_id: Uuid(),
    action: OneOf(['DEPLOY', 'RESTART', 'STOP', 'UNINSTALL', 'DELETE']),
    expected_duration_sec: Nullable(Whole(0), { description: 'From history; null where a service has none.' }),
    downtime: Flag(),
    stages: Type.Array(Type.Object({ name: Text(), services: Type.Array(PlannedService) })),
  },
  { title: 'DeploymentPlan' },
)

const DryRun = { dry_run: Maybe(Flag({ description: 'Answer the plan of this action, and do nothing.' })) }

/** What an action declares that answers its plan instead of being done, where its query says `dry_run`. */
export const planned = (query: TObject = Type.Object({})) => ({
  query: merge(query, DryRun),
  other: {
    status: 200 as const,
    answer: PlanAnswer,
    description: 'With `dry_run`: what would happen. Nothing was done.',
  },
})

export const isDryRun = ({ query }: { query: Record<string, unknown> }): boolean => query.dry_run === true
