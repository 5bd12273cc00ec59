/** The last lines of a deployment's log about a failed service: often the reason. */
import { useQuery } from '@tanstack/react-query'
import * as read from '../api/queries.ts'
import { spansOf } from './ansi.ts'

/** True if its last deployment failed. Other problems of a running service are not in the log of a deployment. */
export const hasFailed = ({ state }: read.ServiceStatus): boolean => state.endsWith('_ERROR')

export const LastLines = ({ status, environmentId }: { status: read.ServiceStatus; environmentId: string }) => {
  const { id, error, execution_id: executionId } = status
  const asked = useQuery({
    ...read.lastLines(environmentId, executionId ?? '', id, error?.message ?? ''),
    enabled: executionId !== undefined && hasFailed(status),
  })
  if (!hasFailed(status) || asked.data === undefined || asked.data.lines.length === 0) return null
  const { name, lines } = asked.data
  const label = `The last lines about ${name}`
  return (
    <div className="last-lines">
      <p className="small">{label}</p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling element must be reachable by keyboard */}
      <section tabIndex={0} aria-label={label}>
        <pre className="code">
          {lines.map((line, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the lines never change
            <span key={index}>
              {spansOf(line).map(({ text, className }, part) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a line never change
                <span key={part} className={className}>
                  {text}
                </span>
              ))}
              {'\n'}
            </span>
          ))}
        </pre>
      </section>
    </div>
  )
}
