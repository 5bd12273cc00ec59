/** Cases of jobs. */
import { newId } from '../../src/lib/ids.ts'
import type { Json } from '../support/api.ts'
import type { Case, Cases, Scene, Values } from './case.ts'
import { newRegistry } from './container.ts'

/** A cron job from an image. */
export const cronBody = (registryId: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  source: { image: { registry_id: registryId, image_name: 'fake/task', tag: '1.0' } },
  schedule: { cronjob: { scheduled_at: '0 3 * * *' } },
  healthchecks: {},
  ...more,
})

/** A lifecycle job from a repository. */
export const lifecycleBody = (more: Record<string, unknown> = {}): Record<string, unknown> => ({
  source: { docker: { git_repository: { url: 'https://github.com/example/jobs.git' } } },
  schedule: { on_start: { entrypoint: 'sh -c', arguments: ['migrate'] } },
  healthchecks: {},
  ...more,
})

/** A new cron job in an environment, unless `more` says otherwise. */
export const newJob = async (
  scene: Scene,
  environmentId: string,
  more: Record<string, unknown> = {},
): Promise<Json> => {
  const body = cronBody(await newRegistry(scene.api), { name: `job ${newId()}`, ...more })
  return scene.post(`/environment/${environmentId}/job`, body)
}

const deployed: Case = {
  async before(values, scene) {
    await scene.post(`/job/${values.jobId}/deploy`, {})
    await scene.settled(values.environmentId!)
  },
}

/** A job that follows its image. */
const following = async (values: Values, scene: Scene): Promise<void> => {
  const image = { registry_id: await newRegistry(scene.api), image_name: `follow/task-${scene.count}`, tag: '1.0' }
  await newJob(scene, await scene.need(values, 'environmentId'), { source: { image }, auto_deploy: true })
}

/** A deployed cron job, and a run of it by hand. */
const ran = async (values: Values, scene: Scene): Promise<void> => {
  await scene.post(`/job/${values.jobId}/deploy`, {})
  await scene.settled(values.environmentId!)
  values.runId = (await scene.post(`/job/${values.jobId}/run`, {})).id
}

export const jobCases: Cases = {
  makers: {
    async runId(values, scene) {
      await scene.need(values, 'jobId')
      await ran(values, scene)
      return values.runId!
    },
    async jobId(values, scene) {
      return (await newJob(scene, await scene.need(values, 'environmentId'))).id
    },
  },
  cases: {
    createJob: { body: (_, { count }) => lifecycleBody({ name: `made ${count}` }) },
    editJob: { body: () => ({ max_nb_restart: 2 }) },
    deployJob: { body: () => ({ image_tag: '1.2' }) },
    redeployJob: { ...deployed, query: () => ({ forceEvent: 'CRON' }) },
    uninstallJob: { ...deployed, scopes: [] },
    startJobRun: deployed,
    listJobRuns: { before: ran },
    listJobDeploymentHistory: deployed,
    listJobDeploymentHistoryV2: deployed,
    autoDeployJobEnvironments: {
      before: following,
      body: (_, { count }) => ({ image_name: `follow/task-${count}`, tag: '2.0' }),
    },
  },
}
