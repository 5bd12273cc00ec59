/** Shown instead of content: nothing yet, an error with its request id, or a note about a long wait. */
import { Button } from '@mantine/core'
import { type ReactNode, useEffect, useState } from 'react'
import { toProblem } from '../api/client.ts'

export const Empty = ({ title, children, actions }: { title: string; children?: ReactNode; actions?: ReactNode }) => (
  <div className="nothing">
    <h2>{title}</h2>
    {children}
    {actions === undefined ? null : <div className="actions">{actions}</div>}
  </div>
)

const titles: Record<number, string> = {
  0: 'The server cannot be reached',
  403: 'You may not see this',
  404: 'There is nothing here',
}

/** For messages that would only repeat the title. */
const advice: Record<number, string> = {
  0: 'Check your connection, then try again. If it lasts, ask the operator of the server.',
  404: 'It may have been deleted, or you may not see it.',
}

const Reference = ({ id }: { id: string }) => (
  <p className="small">
    Request <code className="wrap">{id}</code>{' '}
    <button type="button" className="as-link" onClick={() => void navigator.clipboard.writeText(id)}>
      Copy
    </button>
  </p>
)

export const Failure = ({ error, retry }: { error: unknown; retry?: () => void }) => {
  const { status, message, requestId } = toProblem(error)
  return (
    <div className="nothing" role="alert">
      <h2>{titles[status] ?? 'This did not work'}</h2>
      <p>{advice[status] ?? message}</p>
      {status === 403 ? <p>Ask an administrator of the organization for a role or a token that allows it.</p> : null}
      {requestId === null ? null : <Reference id={requestId} />}
      {status === 404 ? (
        <div className="actions">
          <a href="/">Go to the overview</a>
        </div>
      ) : null}
      {retry === undefined || status === 403 || status === 404 ? null : (
        <div className="actions">
          <Button variant="default" onClick={retry}>
            Try again
          </Button>
        </div>
      )}
    </div>
  )
}

const useIsLate = (afterMs: number): boolean => {
  const [isLate, setLate] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), afterMs)
    return () => clearTimeout(timer)
  }, [afterMs])
  return isLate
}

/** Shows nothing for a moment: most answers arrive sooner. After a long wait it says so, and what can be done. */
export const Waiting = ({ what = 'the server', isInline = false }: { what?: string; isInline?: boolean }) => {
  const isLate = useIsLate(400)
  const isVeryLate = useIsLate(2000)
  return (
    <div className={isInline ? 'dim' : 'nothing'} aria-busy="true">
      {isVeryLate ? `No answer from ${what} yet. ` : isLate ? `Waiting for ${what} …` : ' '}
      {isVeryLate ? (
        <button type="button" className="as-link" onClick={() => location.reload()}>
          Load the page again
        </button>
      ) : null}
    </div>
  )
}

export interface Asked<T> {
  data: T | undefined
  error: unknown
  refetch(): unknown
}

/** Shows the loaded data, or why they cannot be shown. */
export function Answer<T>({ of, children }: { of: Asked<T>; children: (data: T) => ReactNode }) {
  if (of.data !== undefined) return children(of.data)
  return of.error == null ? <Waiting /> : <Failure error={of.error} retry={() => void of.refetch()} />
}
