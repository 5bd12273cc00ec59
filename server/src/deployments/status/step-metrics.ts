/**
 * The durations of a service's steps in one deployment, by the step names of the public API. One column of a statement
 * reads them all; steps without a public name count only in the total.
 */
import type { ServiceStatus } from '../deployments.ts'

/** SQL for the steps and the duration of the service and deployment in the row `m`; null without a deployment. */
export const stepsSql = (row: string): string => `
  (select json_build_array((extract(epoch from w.finished_at - w.started_at) * 1000)::bigint,
      (select json_agg(json_build_array(p.name, p.status,
          (extract(epoch from p.finished_at - p.started_at) * 1000)::bigint) order by p.started_at)
        from deployment_step p where p.deployment_id = w.deployment_id and p.service_id = w.service_id))::text
    from deployment_service w where w.deployment_id = ${row}.deployment_id and w.service_id = ${row}.service_id)`

const publicNames: Record<string, string> = {
  source: 'GIT_CLONE',
  image: 'BUILD',
  pull: 'MIRROR_IMAGE',
  'stop-first': 'DEPLOYMENT',
  start: 'DEPLOYMENT',
  ready: 'DEPLOYMENT',
  retire: 'DEPLOYMENT',
  switch: 'ROUTER_DEPLOYMENT',
  drain: 'ROUTER_DEPLOYMENT',
  unlock: 'EXECUTING',
}

const publicNameOf = (name: string): string | undefined => (name.startsWith('task-') ? 'EXECUTING' : publicNames[name])

type Step = [name: string, status: string, ms: number]

const worstFirst = ['ERROR', 'CANCEL', 'SUCCESS']

const seconds = (ms: number): number => Math.round(Math.max(0, ms) / 1000)

const durationOf = (steps: readonly Step[]): number => seconds(steps.reduce((sum, [, , ms]) => sum + ms, 0))

const metricOf = ([name, steps]: [string, Step[]]) => ({
  step_name: name,
  status: worstFirst.find((word) => steps.some(([, status]) => status === word)) ?? 'SKIP',
  duration_sec: durationOf(steps),
})

/** `text` is the result of the column of `stepsSql`. The whole duration is known once the service is done. */
export const stepsFrom = (text: string | null | undefined): Pick<ServiceStatus, 'steps'> => {
  if (text == null) return {}
  const [totalMs, found] = JSON.parse(text) as [number | null, Step[] | null]
  const steps = found ?? []
  const named = [...Map.groupBy(steps, ([name]) => publicNameOf(name))].filter(
    (entry): entry is [string, Step[]] => entry[0] !== undefined,
  )
  return {
    steps: {
      total_duration_sec: totalMs === null ? null : seconds(totalMs),
      total_computing_duration_sec: durationOf(steps),
      details: named.map(metricOf),
    },
  }
}
