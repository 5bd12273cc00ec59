/** The background work of the server: loops, workers and queues whose last run failed. */
import { listed, topic, warning } from '../lib/finding.ts'
import type { WorkRegistry } from '../work/registry.ts'

export type WorkFacts = ReturnType<WorkRegistry['read']>

const background = topic('work', 'Background work')

/** A failed run is repeated: only the last one counts. */
export const judgeWork = (facts: WorkFacts) => {
  const failing = facts.filter(
    ({ lastError, lastRunAt }) => lastError !== null && lastError.at.getTime() === lastRunAt?.getTime(),
  )
  const words = failing.map(({ name, lastError }) => `${name} (${lastError!.code})`)
  return background.judge(
    failing.length === 0
      ? []
      : [
          warning(
            `The last run failed of: ${listed(words)}.`,
            'The log has the reason, under the name of the work; it is repeated automatically.',
          ),
        ],
    `The last run of each of ${facts.length} kinds of work succeeded.`,
  )
}
