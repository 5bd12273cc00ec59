/** What is wrong with this installation, and how to mend it: for its operator. */
import { useQuery } from '@tanstack/react-query'
import type { Finding } from '../../api/findings.ts'
import * as read from '../../api/queries.ts'
import { Empty } from '../../ui/notices.tsx'
import { Rows } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { StateMark } from '../../ui/state.tsx'

const words: Record<Finding['state'], string> = {
  OK: 'Fine',
  WARNING: 'Warning',
  FAILED: 'Failed',
  SKIPPED: 'Not checked',
}

const order = ['FAILED', 'WARNING', 'OK', 'SKIPPED']

/** The worst first. */
const sorted = (findings: readonly Finding[]): Finding[] =>
  findings.toSorted((a, b) => order.indexOf(a.state) - order.indexOf(b.state))

export const System = () => {
  const findings = useQuery(read.findings())
  return (
    <div className="stack">
      <div className="row">
        <p className="dim grow">
          Only the operator sees this. On the machine of the server, <code>npm run doctor</code> checks the same, also
          while the server does not run.
        </p>
        {findings.data === undefined ? null : (
          <SmallButton className="push" loading={findings.isFetching} onClick={() => void findings.refetch()}>
            Check again
          </SmallButton>
        )}
      </div>
      <Rows
        label="Findings"
        of={{ ...findings, data: findings.data === undefined ? undefined : sorted(findings.data) }}
        empty={<Empty title="Nothing is checked" />}
        columns={[
          {
            title: 'State',
            look: 'tight',
            show: ({ state }) => <StateMark state={state === 'OK' ? 'DONE' : state} word={words[state]} />,
          },
          { title: 'What', look: 'tight', show: ({ title }) => <span className="strong">{title}</span> },
          {
            title: 'Finding',
            show: ({ message, mending }) => (
              <>
                {message}
                {mending === null ? null : <p className="dim small wrap">{mending}</p>}
              </>
            ),
          },
        ]}
      />
    </div>
  )
}
