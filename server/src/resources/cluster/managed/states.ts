/** What is done with a cluster at its provider, and the state of a cluster at each point of it. Pure. */

const actions = ['DEPLOY', 'DRY_RUN', 'RESTART', 'UPGRADE', 'STOP', 'DELETE'] as const
export type Action = (typeof actions)[number]

interface Course {
  queued: string
  /** While the tool is made ready; absent: as `working`. */
  preparing?: 'BUILDING'
  working: string
  /** Once the tool has ended well, until the cluster is connected. */
  connecting?: string
  /** Absent: what it was before. */
  done?: string
  failed: string
  /** Words of the log: while it goes on, at its end, after a failure. */
  steps: readonly [string, string, string]
  /** The first words of the log. */
  begins: string
  verb: 'apply' | 'plan' | 'destroy'
  /** Of the audit log: what was asked for, what became of it, and the same of a failure. */
  events: readonly [string, string, string]
}

const plan: Course = {
  queued: 'QUEUED',
  preparing: 'BUILDING',
  working: 'DRY_RUN',
  failed: 'DEPLOYMENT_ERROR',
  steps: ['DryRun', 'DryRun', 'DryRunError'],
  begins: 'Planning what a deployment of the cluster would change.',
  verb: 'plan',
  events: ['TRIGGER_DEPLOY_DRY_RUN', 'DEPLOYED_DRY_RUN', 'DEPLOYED_DRY_RUN_FAILED'],
}

const deploy: Course = {
  ...plan,
  queued: 'DEPLOYMENT_QUEUED',
  working: 'DEPLOYING',
  done: 'DEPLOYED',
  steps: ['Create', 'Created', 'CreateError'],
  begins: 'Deploying the cluster.',
  verb: 'apply',
  events: ['TRIGGER_DEPLOY', 'DEPLOYED', 'DEPLOY_FAILED'],
}

export const courses: Readonly<Record<Action, Course>> = {
  DEPLOY: deploy,
  UPGRADE: { ...deploy, steps: ['Upgrade', 'Upgraded', 'UpgradeError'], begins: 'Upgrading the cluster.' },
  DRY_RUN: plan,
  RESTART: {
    ...deploy,
    queued: 'RESTART_QUEUED',
    working: 'RESTARTING',
    connecting: 'RESTARTED',
    failed: 'RESTART_ERROR',
    begins: 'Starting the cluster again.',
    events: ['TRIGGER_RESTART', 'RESTARTED', 'RESTART_FAILED'],
  },
  STOP: {
    queued: 'STOP_QUEUED',
    working: 'STOPPING',
    done: 'STOPPED',
    failed: 'STOP_ERROR',
    steps: ['Pause', 'Paused', 'PauseError'],
    begins: 'Stopping the cluster.',
    verb: 'apply',
    events: ['TRIGGER_STOP', 'STOPPED', 'STOP_FAILED'],
  },
  DELETE: {
    queued: 'DELETE_QUEUED',
    working: 'DELETING',
    done: 'DELETED',
    failed: 'DELETE_ERROR',
    steps: ['Delete', 'Deleted', 'DeleteError'],
    begins: 'Deleting the cluster at its provider.',
    verb: 'destroy',
    events: ['TRIGGER_DELETE', 'DELETED', 'DELETE_FAILED'],
  },
}
