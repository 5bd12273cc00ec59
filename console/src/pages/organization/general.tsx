/** The name and the description of an organization, and its deletion. */

import { forms } from 'virtual:forms'
import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { answerOf, client, inPath } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { Remove } from '../../ui/dialog.tsx'
import { SchemaForm } from '../../ui/form.tsx'
import { Answer } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import type { Props } from './list.ts'

export const General = ({ organizationId }: Props) => {
  const may = useMay()
  const navigate = useNavigate()
  const { data: session } = useQuery(read.session())
  const isOwner = session?.memberships.some(
    (each) => each.organization_id === organizationId && each.role?.name === 'owner',
  )
  const organization = useQuery({
    queryKey: ['organization', organizationId],
    queryFn: () => answerOf(client.GET('/organization/{organizationId}', inPath({ organizationId }))),
  })
  return (
    <Answer of={organization}>
      {(found) => (
        <div className="stack wide">
          <SchemaForm
            schema={forms.organization!}
            value={found}
            first={['name', 'description']}
            isReadOnly={!may('members')}
            saved="Saved."
            save={async (changes) => {
              await answerOf(
                client.PUT('/organization/{organizationId}', { ...inPath({ organizationId }), body: changes as never }),
              )
              await read.refresh('organization', 'organizations')
            }}
          />
          {isOwner === true ? (
            <section className="card">
              <header>
                <h2 className="grow">Delete the organization</h2>
                <Remove
                  name={found.name}
                  what="Delete"
                  asksName
                  changed={['organizations', 'session']}
                  consequence="All its projects, their settings, variables and history are deleted. It must not have services that are deployed."
                  act={async () => {
                    await answerOf(client.DELETE('/organization/{organizationId}', inPath({ organizationId })))
                    await navigate({ to: '/' })
                  }}
                />
              </header>
            </section>
          ) : null}
        </div>
      )}
    </Answer>
  )
}
