/** The actions on a cluster at its provider, and the cluster's state at each point. Pure. */

const actions = ['DEPLOY', 'DRY_RUN', 'RESTART', 'UPGRADE', 'STOP', 'DELETE'] as const
export type Action = (typeof actions)[number]

interface Course {
  queued: string
  /** While the tool is prepared; absent: as `working`. */
  preparing?: 'BUILDING'
  working: string
  /** From the tool's success until the cluster is connected. */
  connecting?: string
  /** Absent: the former status. */
  done?: string
  failed: string
  /** Words of the log: in progress, at the end, after a failure. */
  steps: readonly [string, string, string]
  begins: string
  verb: 'apply' | 'plan' | 'destroy'
  /** Words of the audit log: the request, its success, and its failure. */
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
