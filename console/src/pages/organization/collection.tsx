/** A list of records with the same kind of form: registries, tokens, groups of labels. */

import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { answerOf, client, inPath, pathLike, resultsOf } from '../../api/client.ts'
import type { Right } from '../../api/session.ts'
import { DialogFrame, NewButton, Remove } from '../../ui/dialog.tsx'
import { Answer, Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { type FieldSpec, RecordForm } from '../../ui/record-form.tsx'
import { type Column, Rows } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { tell } from '../../ui/toasts.tsx'
import { type Props, useOrganizationList } from './list.ts'

interface Item {
  id: string
  name: string
}

/** The types of registries are used for all collections. */
const listPath = '/organization/{organizationId}/containerRegistry'
const collectionPath = (path: string) => pathLike(listPath, 'containerRegistry', path)
const itemPath = (path: string) => pathLike(`${listPath}/{containerRegistryId}`, 'containerRegistry', path)

interface Usage {
  id: string
  name: string
  place: string
  to: string | null
}

const usageOf = (each: Partial<Record<string, string>>): Usage => ({
  id: each.service_id ?? each.item_id ?? '',
  name: each.service_name ?? each.item_name ?? '',
  place: [each.project_name, each.environment_name].filter(Boolean).join(' / '),
  to: each.environment_id === undefined ? null : `/e/${each.environment_id}/services`,
})

interface UsedByProps extends Props {
  path: string
  id: string
  name: string
  users: string
  onClose(): void
}

const UsedBy = ({ organizationId, path, id, name, users, onClose }: UsedByProps) => {
  const answer = useQuery({
    queryKey: ['users', path, id],
    queryFn: async () => {
      const used = pathLike(`${listPath}/{containerRegistryId}/associatedServices`, 'containerRegistry', path)
      const asked = pathLike(used, 'associatedServices', users)
      const results = await resultsOf(client.GET(asked, inPath({ organizationId, containerRegistryId: id })))
      return results.map(usageOf)
    },
  })
  return (
    <DialogFrame title={`What uses ${name}`} onClose={onClose}>
      <Answer of={answer}>
        {(rows) =>
          rows.length === 0 ? (
            <p className="dim">Nothing that you may see.</p>
          ) : (
            <ul className="plain-list stack tight">
              {rows.map((each) => (
                <li key={each.id} className="wrap">
                  {each.to === null ? each.name : <Link to={each.to}>{each.name}</Link>}{' '}
                  <span className="dim small">{each.place}</span>
                </li>
              ))}
            </ul>
          )
        }
      </Answer>
    </DialogFrame>
  )
}

interface CollectionProps<Row extends Item> extends Props {
  /** The name of one in a sentence: `registry`. */
  noun: string
  /** The last parts of its path. */
  path: string
  /** The path of a single one, if that differs between rows. */
  pathOf?(row: Row): string
  columns: readonly Column<Row>[]
  fields: readonly FieldSpec[]
  /** The fields of a change, if they differ. */
  fieldsOf?(row: Row): readonly FieldSpec[]
  empty: ReactNode
  /** The right to make and change them; administrators may delete them. */
  right: Right
  /** The list of users of one, and their number. */
  users?: { path: string; count(row: Row): number }
  consequence: string
  /** Lists that are read again besides this one. */
  alsoChanged?: readonly string[]
  /** Without the general button: there are others. */
  hasOwnButtons?: boolean
}

type Opened<Row> = { edit: Row } | { users: Row } | 'new' | null

export function Collection<Row extends Item>(props: CollectionProps<Row>) {
  const { organizationId, noun, path, columns, fields, right, users, consequence, alsoChanged = [] } = props
  const may = useMay()
  const [opened, open] = useState<Opened<Row>>(null)
  const close = (): void => open(null)
  const list = useOrganizationList(path, organizationId, async () => {
    const answer = await answerOf(client.GET(collectionPath(path), inPath({ organizationId })))
    return answer as unknown as { results: Row[] }
  })
  const at = (row: Row) => ({ path: { organizationId, containerRegistryId: row.id } })
  const placeOf = (row: Row) => itemPath(props.pathOf?.(row) ?? path)
  const changed = [path, ...alsoChanged]
  const used: Column<Row>[] =
    users === undefined
      ? []
      : [
          {
            title: 'Used by',
            look: 'tight optional',
            show: (row) =>
              users.count(row) === 0 ? (
                <span className="dim">nothing</span>
              ) : (
                <SmallButton onClick={() => open({ users: row })}>{users.count(row)}</SmallButton>
              ),
          },
        ]
  const actions: Column<Row>[] =
    may(right) || may('administer')
      ? [
          {
            title: 'Actions',
            look: 'tight',
            show: (row) => (
              <span className="row wraps">
                {may(right) ? (
                  <SmallButton aria-label={`Edit ${row.name}`.slice(0, 200)} onClick={() => open({ edit: row })}>
                    Edit
                  </SmallButton>
                ) : null}
                {may('administer') ? (
                  <Remove
                    name={row.name}
                    what="Delete"
                    changed={changed}
                    consequence={consequence}
                    act={() => answerOf(client.DELETE(placeOf(row), { params: at(row) }))}
                  />
                ) : null}
              </span>
            ),
          },
        ]
      : []
  const make =
    may(right) && props.hasOwnButtons !== true ? (
      <NewButton onClick={() => open('new')}>{`New ${noun}`}</NewButton>
    ) : null
  return (
    <div className="stack">
      {make}
      <Rows
        of={list}
        columns={[...columns, ...used, ...actions]}
        empty={<Empty title={`No ${noun} yet`}>{props.empty}</Empty>}
      />
      {opened === 'new' ? (
        <RecordForm
          title={`New ${noun}`}
          button="Create"
          fields={fields}
          changed={changed}
          onClose={close}
          save={async (body) => {
            await answerOf(
              client.POST(collectionPath(path), { params: { path: { organizationId } }, body: body as never }),
            )
            tell(`The ${noun} was created.`)
          }}
        />
      ) : null}
      {opened !== null && opened !== 'new' && 'edit' in opened ? (
        <RecordForm
          title={`Edit ${opened.edit.name}`}
          button="Save"
          fields={props.fieldsOf?.(opened.edit) ?? fields}
          record={opened.edit}
          changed={changed}
          onClose={close}
          save={async (body) => {
            await answerOf(client.PUT(placeOf(opened.edit), { params: at(opened.edit), body: body as never }))
            tell('Saved.')
          }}
        />
      ) : null}
      {opened !== null && opened !== 'new' && 'users' in opened && users !== undefined ? (
        <UsedBy
          organizationId={organizationId}
          path={path}
          id={opened.users.id}
          name={opened.users.name}
          users={users.path}
          onClose={close}
        />
      ) : null}
    </div>
  )
}
