/** The schema of an action's plan, and the declaration of actions that can return one. */
import Type, { type TObject } from 'typebox'
import { Anything, Flag, Maybe, merge, Nullable, OneOf, Text, Uuid, Whole } from '../api/operations/schema.ts'
import { versionChoices } from '../deployments/deployments.ts'
import { serviceTypes } from '../kinds.ts'

export const versionChoiceWords =
  'Which version: NEWEST is the head of the branch or the configured tag, DEPLOYED the deployed commit or image, REQUESTED the one in the request.'

const longText = () => Text(65_536)

const VersionChange = () => Nullable(Type.Object({ from: Nullable(Text(1024)), to: Nullable(Text(1024)) }))

const Keys = () => Type.Array(longText())

const Changes = Type.Object(
  {
    image: VersionChange(),
    commit: VersionChange(),
    configuration: Type.Array(Type.Object({ field: Text(1024), from: Anything(), to: Anything() })),
    variables: Type.Object(
      { added: Keys(), changed: Keys(), removed: Keys() },
      { description: 'Keys only; values are never shown.' },
    ),
    objects: Maybe(
      Type.Array(Type.Object({ name: Text(512), change: OneOf(['added', 'removed', 'changed']) }), {
        description:
          'The objects that a chart would change on its cluster, by kind and name; their content is never shown.',
      }),
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
    version_choice: Nullable(OneOf(versionChoices), { description: versionChoiceWords }),
    git_commit_id: Nullable(Text(64), { description: 'The commit that it would be built from.' }),
    changes: Changes,
    not_applied: Type.Array(Text(1024), {
      description:
        'JSON pointers to what is configured and has no effect on this server; advanced settings are below /advanced_settings.',
    }),
  },
  { title: 'PlannedService' },
)

const PlanAnswer = Type.Object(
  {
    environment_id: Uuid(),
    action: OneOf(['DEPLOY', 'RESTART', 'STOP', 'UNINSTALL', 'DELETE']),
    expected_duration_sec: Nullable(Whole(0), { description: 'Estimated from history; null if a service has none.' }),
    downtime: Flag(),
    stages: Type.Array(Type.Object({ name: Text(), services: Type.Array(PlannedService) })),
  },
  { title: 'DeploymentPlan' },
)

const DryRun = { dry_run: Maybe(Flag({ description: 'Return the plan of this action without doing anything.' })) }

/** Declared by an action that returns its plan instead of acting if its query has `dry_run`. */
export const planned = (query: TObject = Type.Object({})) => ({
  query: merge(query, DryRun),
  other: {
    status: 200 as const,
    answer: PlanAnswer,
    description: 'With `dry_run`: what would happen. Nothing has been changed.',
  },
})

export const isDryRun = ({ query }: { query: Record<string, unknown> }): boolean => query.dry_run === true
