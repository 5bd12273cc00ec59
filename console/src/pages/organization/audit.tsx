/** The audit log: actions, actors and changes; filters are in the address. */

import { Button, Select, TextInput } from '@mantine/core'
import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { answerOf, client, type Schemas } from '../../api/client.ts'
import { Answer, Empty } from '../../ui/notices.tsx'
import { ListTable } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { Time } from '../../ui/time.tsx'
import type { Props } from './list.ts'

type Event = Schemas['OrganizationEvent']
type Change = Record<string, unknown>

const lower = (word: string): string =>
  word
    .toLowerCase()
    .replaceAll('_', ' ')
    .replace(/\b(api|sso)\b/g, (each) => each.toUpperCase())

const pastWords: Record<string, string> = {
  CREATE: 'created',
  UPDATE: 'changed',
  DELETE: 'deleted',
  ACCEPT: 'accepted',
  CLONE: 'cloned',
  EXPORT: 'exported',
  IMPORT: 'imported',
  LOCK: 'locked',
  UNLOCK: 'unlocked',
  DEPLOYED_DRY_RUN: 'planned',
  DEPLOYED_DRY_RUN_FAILED: 'failed to plan',
  TRIGGER_DEPLOY_DRY_RUN: 'asked to plan',
  TRIGGER_FORCE_RUN: 'asked to run',
  TRIGGER_FORCE_RUN_DEPLOY: 'asked for the start run of',
  TRIGGER_FORCE_RUN_STOP: 'asked for the stop run of',
  TRIGGER_FORCE_RUN_DELETE: 'asked for the delete run of',
  FORCE_RUN_SUCCEEDED: 'ran',
  FORCE_RUN_FAILED: 'failed to run',
  FORCE_RUN_QUEUED: 'queued a run of',
  FORCE_RUN_QUEUED_DEPLOY: 'queued the start run of',
  FORCE_RUN_QUEUED_STOP: 'queued the stop run of',
  FORCE_RUN_QUEUED_DELETE: 'queued the delete run of',
  DRY_RUN: 'queued a plan of',
  DEPLOY_QUEUED: 'queued a deployment of',
  STOP_QUEUED: 'queued a stop of',
  RESTART_QUEUED: 'queued a restart of',
  DELETE_QUEUED: 'queued the deletion of',
  UNINSTALL_QUEUED: 'queued the removal of',
  TRIGGER_TERRAFORM_FORCE_UNLOCK: 'asked to unlock the state of',
  TERRAFORM_FORCE_UNLOCK_SUCCEEDED: 'unlocked the state of',
  TERRAFORM_FORCE_UNLOCK_FAILED: 'failed to unlock the state of',
  TRIGGER_TERRAFORM_MIGRATE_STATE: 'asked to move the state of',
  TERRAFORM_MIGRATE_STATE_SUCCEEDED: 'moved the state of',
  TERRAFORM_MIGRATE_STATE_FAILED: 'failed to move the state of',
  POLICY_FAILED: 'refused',
  SHELL: 'opened a shell in',
}

/** The action in words, as read before the name of its target. */
const eventWords = (type: string): string =>
  pastWords[type] ??
  lower(type)
    .replace(/^trigger (.*)$/, 'asked to $1')
    .replace(/^(.*) failed$/, 'failed to $1')
    .replace('dry run', 'plan')

const originWords: Record<string, string> = {
  API: 'through the API',
  CLI: 'on the command line',
  CONSOLE: 'in the console',
  GIT: 'because of a push',
  QOVERY_INTERNAL: 'by this server',
  TERRAFORM_PROVIDER: 'with Terraform',
}

const parse = (text: string | null): Change => {
  try {
    const value: unknown = JSON.parse(text ?? '')
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Change) : {}
  } catch {
    return {}
  }
}

const shown = (value: unknown): string =>
  value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value)

const fetchPage = async (organizationId: string, query: Record<string, string | number>) =>
  answerOf(
    client.GET('/organization/{organizationId}/events', {
      params: { path: { organizationId }, query: query as never },
    }),
  )

const Diff = ({ event }: { event: Event }) => {
  const [before, after] = [parse(event.original_change), parse(event.change)]
  const fields = Object.entries({ ...before, ...after }).filter(
    ([field]) => shown(before[field]) !== shown(after[field]),
  )
  return (
    <div className="stack tight">
      {fields.length === 0 ? <p className="dim small">No fields were written.</p> : null}
      <div className="diff">
        {fields.map(([field]) => (
          <div key={field} style={{ display: 'contents' }}>
            <span className="dim">{lower(field)}</span>
            <span className="wrap mono">
              {field in before ? <del className="from">{shown(before[field]).slice(0, 2000)}</del> : null}
              {field in before && field in after ? (
                <>
                  {' '}
                  <span aria-hidden="true">→</span> <span className="hidden-text">becomes</span>{' '}
                </>
              ) : null}
              {field in after ? (
                <ins className="to" style={{ textDecoration: 'none' }}>
                  {shown(after[field]).slice(0, 2000)}
                </ins>
              ) : null}
            </span>
          </div>
        ))}
      </div>
      {event.user_agent === null ? null : <p className="dim small wrap">With {event.user_agent}</p>}
    </div>
  )
}

const EventRow = ({ event }: { event: Event }) => {
  const [isOpen, open] = useState(false)
  const { project_name: project, environment_name: environment } = event
  return (
    <>
      <tr>
        <td className="tight">
          <Time at={event.timestamp} />
        </td>
        <td className="wrap" style={{ minWidth: 120 }}>
          {eventWords(event.event_type)} {lower(event.sub_target_type ?? event.target_type)}{' '}
          <span className="strong wrap">{event.target_name}</span>
        </td>
        <td className="optional dim wrap">{[project, environment].filter(Boolean).join(' / ')}</td>
        <td className="optional dim wrap" style={{ minWidth: 200 }}>
          {event.triggered_by} <p className="small">{originWords[event.origin] ?? lower(event.origin)}</p>
        </td>
        <td className="tight">
          {event.change === '' && event.original_change === null ? null : (
            <SmallButton aria-expanded={isOpen} onClick={() => open(!isOpen)}>
              Change
            </SmallButton>
          )}
        </td>
      </tr>
      {isOpen ? (
        <tr>
          <td colSpan={5}>
            <Diff event={event} />
          </td>
        </tr>
      ) : null}
    </>
  )
}

const options = (words: readonly string[], word = lower) => words.map((value) => ({ value, label: word(value) }))
const types = options(
  [
    'CREATE',
    'UPDATE',
    'DELETE',
    'CLONE',
    'ACCEPT',
    'TRIGGER_DEPLOY',
    'TRIGGER_REDEPLOY',
    'TRIGGER_STOP',
    'TRIGGER_RESTART',
    'TRIGGER_DELETE',
    'TRIGGER_CANCEL',
    'DEPLOYED',
    'DEPLOY_FAILED',
    'STOPPED',
    'DELETED',
  ],
  eventWords,
)
const targets = options([
  'PROJECT',
  'ENVIRONMENT',
  'APPLICATION',
  'CONTAINER',
  'DATABASE',
  'JOB',
  'HELM',
  'TERRAFORM',
  'CLUSTER',
  'CONTAINER_REGISTRY',
  'HELM_REPOSITORY',
  'MEMBERS_AND_ROLES',
  'ORGANIZATION',
  'WEBHOOK',
])
const origins = options(
  ['API', 'CLI', 'CONSOLE', 'GIT', 'QOVERY_INTERNAL', 'TERRAFORM_PROVIDER'],
  (word) => originWords[word] ?? lower(word),
)

const useFilters = () => {
  const search = useSearch({ from: '/frame/o/$organizationId/$section' })
  const navigate = useNavigate()
  const set = (change: Partial<typeof search>): void =>
    void navigate({ to: '.', search: { ...search, ...change }, replace: true })
  return { search, set }
}

/** A date in the viewer's time zone as the moment when it begins, or ends. */
const momentOf = (day: string | undefined, isEnd: boolean): string | undefined => {
  const moment = day === undefined ? Number.NaN : Date.parse(`${day}T${isEnd ? '23:59:59.999' : '00:00:00'}`)
  return Number.isNaN(moment) ? undefined : new Date(moment).toISOString()
}

const Filters = () => {
  const { search, set } = useFilters()
  const choice = (name: 'event' | 'target' | 'origin', label: string, data: { value: string; label: string }[]) => (
    <Select
      aria-label={label}
      placeholder={label}
      clearable
      clearButtonProps={{ 'aria-label': `Clear ${label}` }}
      searchable
      w={170}
      data={data}
      value={search[name] ?? null}
      onChange={(value) => set({ [name]: value ?? undefined })}
    />
  )
  const day = (name: 'from' | 'until', label: string) => (
    <div className="row">
      <span className="dim" aria-hidden="true" style={{ minWidth: 36 }}>
        {name === 'from' ? 'From' : 'Until'}
      </span>
      <TextInput
        type="date"
        aria-label={label}
        value={search[name] ?? ''}
        onChange={(event) => set({ [name]: event.currentTarget.value || undefined })}
      />
    </div>
  )
  return (
    <div className="row wraps">
      {choice('event', 'Any action', types)}
      {choice('target', 'Anything', targets)}
      {choice('origin', 'Any way', origins)}
      <TextInput
        aria-label="By whom"
        placeholder="By (full name)"
        w={170}
        value={search.by ?? ''}
        onChange={(event) => set({ by: event.currentTarget.value || undefined })}
      />
      <div className="row wraps">
        {day('from', 'From this day')}
        {day('until', 'Until this day')}
      </div>
    </div>
  )
}

export const Audit = ({ organizationId }: Props) => {
  const { search } = useFilters()
  const query = {
    pageSize: 50,
    ...(search.event === undefined ? {} : { eventType: search.event }),
    ...(search.target === undefined ? {} : { targetType: search.target }),
    ...(search.origin === undefined ? {} : { origin: search.origin }),
    ...(search.by === undefined ? {} : { triggeredBy: search.by }),
    ...Object.fromEntries(
      [
        ['fromTimestamp', momentOf(search.from, false)],
        ['toTimestamp', momentOf(search.until, true)],
      ].flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
    ),
  }
  const events = useInfiniteQuery({
    queryKey: ['audit', organizationId, query],
    initialPageParam: '',
    queryFn: ({ pageParam }) =>
      fetchPage(organizationId, { pageSize: 50, ...query, ...(pageParam === '' ? {} : { continueToken: pageParam }) }),
    getNextPageParam: ({ links }) =>
      links.next === undefined ? null : new URL(links.next, location.origin).searchParams.get('continueToken'),
  })
  return (
    <div className="stack">
      <Filters />
      <Answer of={events}>
        {({ pages }) => {
          const rows = pages.flatMap((page) => page.events)
          if (rows.length === 0)
            return Object.keys(query).length > 1 ? (
              <Empty title="No event fits">
                <p>Choose fewer filters, or a longer time.</p>
              </Empty>
            ) : (
              <Empty title="Nothing was done yet" />
            )
          return (
            <ListTable
              label="Audit log"
              isCard
              heads={{ When: 'tight', What: '', Where: 'optional', By: 'optional', Actions: 'tight hidden' }}
            >
              {rows.map((event) => (
                <EventRow key={event.id} event={event} />
              ))}
            </ListTable>
          )
        }}
      </Answer>
      {events.hasNextPage ? (
        <div>
          <Button variant="default" loading={events.isFetchingNextPage} onClick={() => void events.fetchNextPage()}>
            Show earlier ones
          </Button>
        </div>
      ) : null}
    </div>
  )
}
