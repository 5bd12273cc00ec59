/** The advanced settings of a service: each with its default and its effect here, with search. */
import { forms } from 'virtual:advanced'
import { Button, Switch, TextInput } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useBlocker, useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { answerOf, client, type FieldProblem, inPath, toProblem } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { EffectChip, Field, Sentence } from '../../ui/field.tsx'
import { Answer, Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { effectOf, type Schema } from '../../ui/schema.ts'
import { submitting } from '../../ui/submitting.ts'
import { ClusterNote, useNotApplied } from './cluster-note.tsx'
import type { Shown } from './shown.ts'

type Values = Record<string, unknown>

const isSame = (left: unknown, right: unknown): boolean =>
  JSON.stringify(left ?? null) === JSON.stringify(right ?? null)

const shown = (value: unknown): string =>
  value === null || value === undefined || value === '' ? 'nothing' : String(JSON.stringify(value))

interface RowProps {
  name: string
  schema: Schema
  value: unknown
  problems: readonly FieldProblem[]
  isReadOnly: boolean
  isIdle: boolean
  onChange(value: unknown): void
}

const Row = ({ name, schema, value, problems, isReadOnly, isIdle, onChange }: RowProps) => {
  const isChanged = !isSame(value, schema.default)
  return (
    <div className="setting">
      <div className="stack tight">
        <div className="row wraps">
          <code className="wrap strong">{name}</code>
          {isIdle ? null : <EffectChip schema={schema} />}
          {isChanged ? <span className="chip busy">Changed</span> : null}
          {isIdle ? <span className="chip warn">Without effect here</span> : null}
        </div>
        {schema.description === undefined ? null : (
          <p className="small dim">
            <Sentence text={schema.description} />
          </p>
        )}
        <p className="small dim wrap">
          Default: <code>{shown(schema.default)}</code>{' '}
          {isChanged && !isReadOnly ? (
            <button type="button" className="as-link" onClick={() => onChange(schema.default)}>
              Reset
            </button>
          ) : null}
        </p>
      </div>
      <Field
        name={name}
        pointer={`/${name}`}
        schema={{ ...schema, description: undefined } as Schema}
        value={value}
        problems={problems}
        isReadOnly={isReadOnly || effectOf(schema) === 'refused'}
        onChange={onChange}
      />
    </div>
  )
}

const Filter = ({ q, only, put }: { q: string; only: boolean; put(q: string, only: boolean): void }) => (
  <div className="row wraps">
    <TextInput
      aria-label="Search the advanced settings"
      placeholder="Search names and descriptions"
      value={q}
      onChange={(event) => put(event.currentTarget.value, only)}
      style={{ flex: 1, maxWidth: 360, minWidth: 200 }}
    />
    <Switch label="Only changed ones" checked={only} onChange={(event) => put(q, event.currentTarget.checked)} />
  </div>
)

const Form = ({ service, values }: { service: read.Service; values: Values }) => {
  const { q = '' } = useSearch({ from: '/frame/s/$kind/$serviceId/$section' })
  const navigate = useNavigate()
  const may = useMay()
  const notApplied = useNotApplied(service)
  const [only, setOnly] = useState(false)
  const [draft, setDraft] = useState<Values>({})
  const [round, setRound] = useState(0)
  const schemas = forms[service.kind]?.properties ?? {}
  const held = (name: string): unknown => (name in draft ? draft[name] : values[name])
  const changed = Object.keys(draft).filter((name) => !isSame(draft[name], values[name]))
  const begin = (): void => {
    setDraft({})
    setRound(round + 1)
  }
  const saving = useMutation({
    async mutationFn() {
      const params = { path: { containerId: service.id } }
      // The request replaces all of them, so it is based on the current ones: changes of other clients are kept.
      const now = (await answerOf(
        client.GET(read.pathOf(service.kind, '/container/{containerId}/advancedSettings'), { params }),
      )) as Values
      const body = { ...now, ...Object.fromEntries(changed.map((name) => [name, draft[name]])) }
      return answerOf(
        client.PUT(read.pathOf(service.kind, '/container/{containerId}/advancedSettings'), {
          params,
          body: body as never,
        }),
      )
    },
    async onSuccess() {
      await read.refresh(['advanced', service.id])
      void read.refresh('plan')
      begin()
    },
  })
  useBlocker({
    shouldBlockFn: ({ current, next }) =>
      current.pathname !== next.pathname && !confirm('Leave without saving the changes?'),
    enableBeforeUnload: changed.length > 0,
    disabled: changed.length === 0,
  })
  const { details = [], message } = saving.error === null ? {} : toProblem(saving.error)
  const fits = ([name, { description = '' }]: [string, Schema]): boolean =>
    `${name} ${description}`.toLowerCase().includes(q.toLowerCase()) &&
    (!only || !isSame(held(name), schemas[name]!.default))
  const rows = Object.entries(schemas).filter(fits)
  return (
    <form className="stack wide" onSubmit={submitting(() => saving.mutate())}>
      <ClusterNote service={service} />
      <Filter
        q={q}
        only={only}
        put={(text, wanted) => {
          setOnly(wanted)
          void navigate({ to: '.', search: { q: text || undefined }, replace: true })
        }}
      />
      {rows.length === 0 ? (
        <Empty title={only ? 'All are at their defaults' : 'No setting matches the search'} />
      ) : (
        <div className="card">
          {rows.map(([name, schema]) => (
            <Row
              // A field may contain half-typed text: it is reset when all are saved or discarded.
              key={`${name} ${round}`}
              name={name}
              schema={schema}
              value={held(name)}
              problems={details}
              isReadOnly={!may('write')}
              isIdle={notApplied.includes(`/advanced_settings/${name}`)}
              onChange={(value) => setDraft({ ...draft, [name]: value })}
            />
          ))}
        </div>
      )}
      {message === undefined ? null : (
        <div className="note bad wrap" role="alert">
          {message}
        </div>
      )}
      {may('write') ? (
        <div className="row save-bar">
          <Button type="submit" disabled={changed.length === 0} loading={saving.isPending}>
            Save
          </Button>
          {changed.length === 0 ? null : (
            <Button variant="default" onClick={begin}>
              Discard
            </Button>
          )}
          <span role="status" className="dim">
            {changed.length > 0
              ? `${changed.length} changed`
              : saving.isSuccess
                ? 'Saved. The next deployment applies it.'
                : ''}
          </span>
        </div>
      ) : null}
    </form>
  )
}

export const AdvancedSettings = ({ service }: Shown) => {
  const values = useQuery({
    queryKey: ['advanced', service.id],
    queryFn: async () =>
      (await answerOf(
        client.GET(
          read.pathOf(service.kind, '/container/{containerId}/advancedSettings'),
          inPath({ containerId: service.id }),
        ),
      )) as Values,
  })
  return <Answer of={values}>{(found) => <Form service={service} values={found} />}</Answer>
}
