/** The services of an environment by stage, with their live state; several can be chosen and acted on at once. */

import { Button } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { memo, useCallback, useState } from 'react'
import { type Action, type Member, type Verb, verbsOfSeveral } from '../../api/actions.ts'
import * as read from '../../api/queries.ts'
import { Check } from '../../ui/check.tsx'
import { addressOf } from '../../ui/crumbs.tsx'
import { FilterField } from '../../ui/filter-field.tsx'
import { Icon } from '../../ui/icons.tsx'
import { Answer, Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { PlanDialog, wordsOf } from '../../ui/plan.tsx'
import { Scroll } from '../../ui/scroll.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { stageName } from '../../ui/stage-name.ts'
import { Freshness, StateMark, shownState } from '../../ui/state.tsx'
import { Time } from '../../ui/time.tsx'
import { type RowPlace, VirtualRows } from '../../ui/virtual-rows.tsx'
import { kindWords } from './kind-words.ts'

interface Props {
  environmentId: string
  members: readonly Member[]
  onDone(): void
}

const targetOf = ({ environmentId, members }: Props, verb: Verb): Action['target'] => ({
  id: environmentId,
  environmentId,
  // All of them by name before a delete, else as many as can be read at a glance.
  name:
    verb === 'delete' || members.length < 4 ? members.map(({ name }) => name).join(', ') : `${members.length} services`,
  several: members,
})

/** The actions on the selected services. */
const BulkBar = (props: Props) => {
  const { members, onDone } = props
  const may = useMay()
  const [asked, ask] = useState<Verb | null>(null)
  if (members.length === 0) return null
  // Only actions that all of them support: no service is left out silently.
  const verbs = (Object.keys(verbsOfSeveral) as Verb[])
    .filter((verb) => may(verb === 'delete' ? 'delete' : 'deploy'))
    .filter((verb) => members.every(({ kind }) => verbsOfSeveral[verb]?.includes(kind) === true))
  return (
    <section className="bulk card row wraps" aria-label="Chosen services">
      <span className="strong" role="status">
        {members.length === 1 ? '1 service chosen' : `${members.length} services chosen`}
      </span>
      <span className="row wraps push">
        {verbs.map((verb) => (
          <SmallButton key={verb} color={verb === 'delete' ? 'red' : 'blue'} onClick={() => ask(verb)}>
            {wordsOf[verb].button}
          </SmallButton>
        ))}
        <Button size="compact-sm" variant="subtle" onClick={onDone}>
          Clear
        </Button>
      </span>
      {asked === null ? null : (
        <PlanDialog
          action={{ verb: asked, target: targetOf(props, asked) }}
          onClose={() => ask(null)}
          onDone={onDone}
        />
      )}
    </section>
  )
}

interface RowProps {
  service: read.Service
  status: read.ServiceStatus | undefined
  address: string | undefined
}

interface Choice {
  /** Absent without rights for actions on several services. */
  chosen: ReadonlySet<string> | null
  choose(ids: readonly string[], isChosen: boolean): void
}

/** True if there are actions on several services of this kind. */
const isChoosable = ({ kind }: read.Service): boolean => verbsOfSeveral.deploy?.includes(kind) === true

const Address = ({ address }: { address: string | undefined }) =>
  address === undefined ? (
    <span className="dim">–</span>
  ) : (
    <a href={address} target="_blank" rel="noreferrer" className="clip" style={{ display: 'block' }}>
      {address.replace(/^https?:\/\//, '')}
    </a>
  )

interface ServiceRowProps extends RowProps {
  isChosen: boolean | null
  choose: Choice['choose']
  place: RowPlace
}

const ServiceRow = memo(({ service, status, address, isChosen, choose, place }: ServiceRowProps) => {
  const shown = status === undefined ? { state: 'READY' } : shownState(status)
  return (
    <tr aria-selected={isChosen ?? undefined} {...place}>
      {isChosen === null ? null : (
        <td className="check">
          {isChoosable(service) ? (
            <Check
              label={`Choose ${service.name}`}
              isChecked={isChosen}
              onChange={(isNow) => choose([service.id], isNow)}
            />
          ) : null}
        </td>
      )}
      <td>
        <Link to={addressOf(service)} className="main wrap">
          {service.name}
        </Link>
        {status?.error === undefined ? null : (
          <p className="small wrap bad-text" style={{ maxWidth: 520 }}>
            {status.error.message}
          </p>
        )}
      </td>
      <td className="of-state">
        <span className="row" style={{ gap: 8 }}>
          <StateMark {...shown} />
          <Freshness status={status?.service_deployment_status ?? ''} />
        </span>
      </td>
      <td className="dim optional">{kindWords[service.kind]}</td>
      <td className="optional" style={{ maxWidth: 230 }}>
        <span className="mono clip" style={{ display: 'block' }} title={service.version ?? undefined}>
          {service.version ?? '–'}
        </span>
      </td>
      <td className="optional" style={{ maxWidth: 260 }}>
        <Address address={address} />
      </td>
      <td className="optional">
        <Time at={status?.last_deployment_date} />
      </td>
    </tr>
  )
})

interface TableProps extends Choice {
  stage: string | null
  rows: readonly RowProps[]
}

const ServiceTable = ({ stage, rows, chosen, choose }: TableProps) => {
  const ids = rows.filter(({ service }) => isChoosable(service)).map(({ service }) => service.id)
  const count = chosen === null ? 0 : ids.filter((id) => chosen.has(id)).length
  return (
    <section className="card">
      {stage === null ? null : (
        <header>
          <h2 className="wrap">{stage}</h2>
        </header>
      )}
      <Scroll label="Services">
        <table className="list services">
          <thead>
            <tr>
              {chosen === null ? null : (
                <th className="check">
                  <Check
                    label={`Choose all${stage === null ? '' : ` of ${stage}`}`}
                    isChecked={count > 0 && count === ids.length}
                    isPartly={count > 0 && count < ids.length}
                    onChange={(isNow) => choose(ids, isNow)}
                  />
                </th>
              )}
              <th>Service</th>
              <th className="of-state">State</th>
              <th className="of-kind optional">Kind</th>
              <th className="of-version optional">Version</th>
              <th className="of-address optional">Address</th>
              <th className="of-time optional">Deployed</th>
            </tr>
          </thead>
          <VirtualRows rows={rows} keyOf={({ service }) => service.id} height={40} columns={chosen === null ? 6 : 7}>
            {(row, place) => (
              <ServiceRow
                {...row}
                isChosen={chosen === null ? null : chosen.has(row.service.id)}
                choose={choose}
                place={place}
              />
            )}
          </VirtualRows>
        </table>
      </Scroll>
    </section>
  )
}

interface Group {
  id: string
  name: string
  rows: RowProps[]
}

/** The services of each stage, and those without a stage. */
const groupsOf = (live: read.LiveStatuses, fitting: readonly read.Service[], links: ReadonlyMap<string, string>) => {
  const statuses = read.statusesIn(live)
  const rowOf = (service: read.Service): RowProps => ({
    service,
    status: statuses.get(service.id),
    address: links.get(service.id),
  })
  const byId = new Map(fitting.map((each) => [each.id, each]))
  const placed: Group[] = read
    .stagesOf(live)
    .map(({ id, name, statuses: mine }) => ({
      id,
      name,
      rows: mine.flatMap((each) => byId.get(each.id) ?? []).map(rowOf),
    }))
    .filter(({ rows }) => rows.length > 0)
  const known = new Set(placed.flatMap(({ rows }) => rows.map(({ service }) => service.id)))
  const others = fitting.filter(({ id }) => !known.has(id)).map(rowOf)
  return { placed, others }
}

const Found = ({
  all,
  live,
  environmentId,
  create,
}: {
  all: readonly read.Service[]
  live: read.LiveStatuses
  environmentId: string
  create: React.ReactNode
}) => {
  const { q = '' } = useSearch({ from: '/frame/e/$environmentId/$section' })
  const navigate = useNavigate()
  const may = useMay()
  const { data: links = [] } = useQuery(read.links(environmentId))
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set())
  const choose = useCallback(
    (ids: readonly string[], isChosen: boolean): void =>
      setChosen((before) => {
        const after = new Set(before)
        for (const id of ids) {
          if (isChosen) after.add(id)
          else after.delete(id)
        }
        return after
      }),
    [],
  )
  const addresses = new Map(links.toReversed().map(({ service_id, url }) => [service_id, url]))
  const fitting = all.filter(({ name, kind }) => `${name} ${kind}`.toLowerCase().includes(q.toLowerCase()))
  const { placed, others } = groupsOf(live, fitting, addresses)
  const choice: Choice = { chosen: may('deploy') || may('delete') ? chosen : null, choose }
  return (
    <div className="stack">
      <div className="row wraps">
        <FilterField
          label="Filter services"
          value={q}
          onChange={(text) => void navigate({ to: '.', search: { q: text || undefined }, replace: true })}
        />
        <span className="push">{create}</span>
      </div>
      <BulkBar
        environmentId={environmentId}
        members={all.filter(({ id }) => chosen.has(id))}
        onDone={() => setChosen(new Set())}
      />
      {placed.map(({ id, name, rows }) => (
        <ServiceTable key={id} stage={placed.length > 1 ? stageName(name) : null} rows={rows} {...choice} />
      ))}
      {others.length === 0 ? null : <ServiceTable stage={null} rows={others} {...choice} />}
      {fitting.length === 0 ? <Empty title="No service matches the filter" /> : null}
    </div>
  )
}

export const Services = ({ environmentId, live }: { environmentId: string; live: read.LiveStatuses }) => {
  const may = useMay()
  const services = useQuery(read.services(environmentId))
  const create = may('write') ? (
    <Button
      component={Link}
      to={`/e/${environmentId}/new/image`}
      variant="default"
      leftSection={<Icon name="plus" size={14} />}
    >
      New service
    </Button>
  ) : null
  return (
    <Answer of={services}>
      {(all) =>
        all.length === 0 ? (
          <Empty title="No services yet" actions={create}>
            <p>
              {may('write')
                ? 'Run an image, build a git repository, or start a database.'
                : 'Members who may create services do so here.'}
            </p>
          </Empty>
        ) : (
          <Found all={all} live={live} environmentId={environmentId} create={create} />
        )
      }
    </Answer>
  )
}
