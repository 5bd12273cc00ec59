/**
 * A dialog that makes or changes a record with the listed fields. Errors of the API are shown at the fields they name.
 * A change sends only the edited fields: secrets that are left empty do not change.
 */

import { ActionIcon, Button, Checkbox, NumberInput, PasswordInput, Select, Textarea, TextInput } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { toProblem } from '../api/client.ts'
import { refresh } from '../api/queries.ts'
import { DialogButtons, DialogFrame, ProblemNote } from './dialog.tsx'
import { Icon } from './icons.tsx'
import { SmallButton } from './small-button.ts'
import { submitting } from './submitting.ts'

export interface Option {
  value: string
  label: string
}

export const optionsOf = (words: Readonly<Record<string, string>>): Option[] =>
  Object.entries(words).map(([value, label]) => ({ value, label }))

export const namesOf = (records: readonly { id: string; name: string }[] = []): Option[] =>
  records.map(({ id, name }) => ({ value: id, label: name }))

export type Values = Readonly<Record<string, unknown>>

export interface FieldSpec {
  /** Its position in the body, as a JSON pointer: `/config/username`. */
  at: string
  label: string
  /** `pairs`: rows of key and value; `many`: some of the options; `lines`: text of several lines. */
  kind?: 'text' | 'secret' | 'lines' | 'choice' | 'many' | 'switch' | 'number' | 'pairs'
  options?: readonly Option[]
  hint?: string
  placeholder?: string
  isRequired?: boolean
  /** It is never read again. Fields of the kind `secret` are. */
  isSecret?: boolean
  /** The initial value in a new record. */
  initial?: unknown
  /** True if it is shown beside these values. */
  when?(values: Values): boolean
}

interface ControlProps {
  field: FieldSpec
  value: unknown
  error: string | undefined
  isFirst: boolean
  isNew: boolean
  onChange(value: unknown): void
}

const isSecret = ({ kind, isSecret: isMarked }: FieldSpec): boolean => kind === 'secret' || isMarked === true

const common = ({ field, error, isFirst, isNew }: ControlProps) => ({
  label: field.label,
  description: isSecret(field) && !isNew ? 'Left empty, it stays as it is. It is never shown.' : field.hint,
  required: field.isRequired === true && (isNew || !isSecret(field)),
  error,
  placeholder: field.placeholder ?? '',
  'data-autofocus': isFirst || undefined,
})

interface Pair {
  key: string
  value: string
}

const Pairs = ({ field, value, error, onChange }: ControlProps) => {
  const pairs = (value ?? []) as Pair[]
  const put = (index: number, change: Partial<Pair>): void =>
    onChange(pairs.map((each, at) => (at === index ? { ...each, ...change } : each)))
  return (
    <fieldset className="plain-set stack tight">
      <legend className="strong small">{field.label}</legend>
      {pairs.map((pair, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: rows have no name but their place
        <div key={index} className="row">
          <TextInput
            className="grow"
            aria-label={`Key ${index + 1}`}
            placeholder="key"
            value={pair.key}
            onChange={(event) => put(index, { key: event.currentTarget.value })}
          />
          <TextInput
            className="grow"
            aria-label={`Value ${index + 1}`}
            placeholder="value"
            value={pair.value}
            onChange={(event) => put(index, { value: event.currentTarget.value })}
          />
          <ActionIcon
            variant="subtle"
            color="red"
            aria-label={`Remove pair ${index + 1}`}
            onClick={() => onChange(pairs.filter((_, at) => at !== index))}
          >
            <Icon name="trash" />
          </ActionIcon>
        </div>
      ))}
      <div>
        <SmallButton onClick={() => onChange([...pairs, { key: '', value: '' }])}>Add a pair</SmallButton>
      </div>
      {error === undefined ? null : <p className="state bad">{error}</p>}
    </fieldset>
  )
}

const text = (value: unknown): string => (value == null ? '' : String(value))

const controls: Record<NonNullable<FieldSpec['kind']>, (props: ControlProps) => ReactNode> = {
  text: (props) => (
    <TextInput
      {...common(props)}
      value={text(props.value)}
      onChange={(event) => props.onChange(event.currentTarget.value)}
    />
  ),
  secret: (props) => (
    <PasswordInput
      {...common(props)}
      value={text(props.value)}
      onChange={(event) => props.onChange(event.currentTarget.value)}
      autoComplete="off"
      visibilityToggleButtonProps={{ 'aria-label': 'Show what was typed' }}
    />
  ),
  lines: (props) => (
    <Textarea
      {...common(props)}
      autosize
      minRows={3}
      maxRows={12}
      styles={{ input: { fontFamily: 'var(--mono)', fontSize: 13 } }}
      value={text(props.value)}
      onChange={(event) => props.onChange(event.currentTarget.value)}
    />
  ),
  choice: (props) => (
    <Select
      {...common(props)}
      data={[...(props.field.options ?? [])]}
      value={typeof props.value === 'string' ? props.value : null}
      onChange={props.onChange}
    />
  ),
  number: (props) => (
    <NumberInput
      {...common(props)}
      value={typeof props.value === 'number' ? props.value : ''}
      onChange={(next) => props.onChange(next === '' ? null : next)}
      hideControls
    />
  ),
  switch: ({ field, value, error, onChange }) => (
    <Checkbox
      label={field.label}
      description={field.hint}
      error={error}
      checked={value === true}
      onChange={(event) => onChange(event.currentTarget.checked)}
    />
  ),
  many: ({ field, value, error, onChange }) => (
    <Checkbox.Group
      label={field.label}
      description={field.hint}
      value={(value ?? []) as string[]}
      onChange={onChange}
      error={error}
    >
      <div className="row wraps many" style={{ margin: '6px 0' }}>
        {(field.options ?? []).map((each) => (
          <Checkbox key={each.value} value={each.value} label={each.label} />
        ))}
      </div>
    </Checkbox.Group>
  ),
  pairs: (props) => <Pairs {...props} />,
}

const valueAt = (record: unknown, pointer: string): unknown =>
  pointer
    .slice(1)
    .split('/')
    .reduce<unknown>((value, name) => (value as Record<string, unknown> | null | undefined)?.[name], record)

/** A body with the values at the pointers. */
const bodyOf = (values: Values): Record<string, unknown> => {
  const body: Record<string, unknown> = {}
  for (const [pointer, value] of Object.entries(values)) {
    const names = pointer.slice(1).split('/')
    let within = body
    for (const name of names.slice(0, -1)) {
      within[name] ??= {}
      within = within[name] as Record<string, unknown>
    }
    within[names.at(-1)!] = value
  }
  return body
}

const isSame = (left: unknown, right: unknown): boolean =>
  JSON.stringify(left ?? null) === JSON.stringify(right ?? null)

const isEmpty = (value: unknown): boolean =>
  value == null || value === '' || (Array.isArray(value) && value.length === 0)

interface Props {
  title: string
  button: string
  fields: readonly FieldSpec[]
  /** The record to change; absent for a new one. */
  record?: object | undefined
  /** Queries that are read again afterwards. */
  changed: readonly string[]
  children?: ReactNode
  save(body: Record<string, unknown>): Promise<unknown>
  onClose(): void
}

export const RecordForm = ({ title, button, fields, record, changed, children, save, onClose }: Props) => {
  const isNew = record === undefined
  const before = Object.fromEntries(
    fields.map((field) => [field.at, isNew ? field.initial : isSecret(field) ? '' : valueAt(record, field.at)]),
  )
  const [draft, setDraft] = useState<Values>({})
  const values: Values = { ...before, ...draft }
  const shown = fields.filter(({ when }) => when === undefined || when(values))
  const sent = Object.fromEntries(
    shown
      .filter(({ at }) => (isNew ? !isEmpty(values[at]) : at in draft && !isSame(draft[at], before[at])))
      .map(({ at }) => [at, values[at]]),
  )
  const isComplete = shown.every(
    (field) => field.isRequired !== true || (!isNew && isSecret(field)) || !isEmpty(values[field.at]),
  )
  const saving = useMutation({
    mutationFn: () => save(bodyOf(sent)),
    async onSuccess() {
      await refresh(...changed)
      onClose()
    },
  })
  const { details = [] } = saving.error === null ? {} : toProblem(saving.error)
  const errorAt = (at: string): string | undefined =>
    details.find(({ field }) => field === at || field.startsWith(`${at}/`))?.message
  const isPlaced = details.length > 0 && shown.some(({ at }) => errorAt(at) !== undefined)
  return (
    <DialogFrame title={title} size="lg" onClose={onClose}>
      <form className="stack" onSubmit={submitting(() => saving.mutate())} noValidate>
        {shown.map((field, index) => {
          const Control = controls[field.kind ?? 'text']
          return (
            <Control
              key={field.at}
              field={field}
              value={values[field.at]}
              error={errorAt(field.at)}
              isFirst={index === 0}
              isNew={isNew}
              onChange={(value) => setDraft((current) => ({ ...current, [field.at]: value }))}
            />
          )
        })}
        {children}
        <ProblemNote error={isPlaced ? null : saving.error} />
        <DialogButtons onClose={onClose}>
          <Button
            type="submit"
            loading={saving.isPending}
            disabled={!isComplete || (!isNew && Object.keys(sent).length === 0)}
          >
            {button}
          </Button>
        </DialogButtons>
      </form>
    </DialogFrame>
  )
}
