/**
 * Forms made from the schemas of the API, which also says at which field something is wrong. Only what was changed is
 * sent: another person's change of another field stays.
 */
import { ActionIcon, Button, NumberInput, Select, Switch, Textarea, TextInput } from '@mantine/core'
import { useBlocker } from '@tanstack/react-router'
import { type FormEvent, type ReactNode, useState } from 'react'
import { type FieldProblem, toProblem } from '../api/client.ts'
import { Icon } from './icons.tsx'
import { controlOf, coreOf, isNullable, isOnlyRecorded, isRefused, type Schema, titleOf } from './schema.ts'

type Value = Record<string, unknown>

interface FieldProps {
  name: string
  /** JSON pointer, as the API names fields in its errors. */
  pointer: string
  schema: Schema
  value: unknown
  problems: readonly FieldProblem[]
  isReadOnly: boolean
  onChange(value: unknown): void
}

const problemAt = (problems: readonly FieldProblem[], pointer: string, within: boolean): string | undefined =>
  problems.find(({ field }) => field === pointer || (within && field.startsWith(`${pointer}/`)))?.message

const hintOf = (schema: Schema): string | undefined =>
  isOnlyRecorded(schema) ? 'Only recorded: it has no effect on this server.' : schema.description

const JsonField = ({ name, pointer, value, problems, isReadOnly, onChange, schema }: FieldProps) => {
  const [text, setText] = useState(() => JSON.stringify(value ?? null, null, 2))
  const [isWrong, setWrong] = useState(false)
  const take = (next: string): void => {
    setText(next)
    try {
      onChange(JSON.parse(next))
      setWrong(false)
    } catch {
      setWrong(true)
    }
  }
  return (
    <Textarea
      label={titleOf(name)}
      description={hintOf(schema)}
      error={isWrong ? 'This is not valid JSON.' : problemAt(problems, pointer, true)}
      value={text}
      readOnly={isReadOnly}
      onChange={(event) => take(event.currentTarget.value)}
      autosize
      minRows={2}
      maxRows={14}
      styles={{ input: { fontFamily: 'var(--mono)', fontSize: 13 } }}
    />
  )
}

const Rows = ({ name, pointer, schema, value, problems, isReadOnly, onChange }: FieldProps) => {
  const rows = Array.isArray(value) ? (value as Value[]) : []
  const properties = Object.entries(coreOf(schema).items?.properties ?? {}).filter(
    ([each, one]) => each !== 'id' && !isRefused(one),
  )
  const put = (index: number, row: Value): void => onChange(rows.map((each, at) => (at === index ? row : each)))
  const fresh = Object.fromEntries(
    properties.flatMap(([each, one]) => (one.default === undefined ? [] : [[each, one.default]])),
  )
  return (
    <fieldset className="card" style={{ padding: '4px 16px 14px', margin: 0 }}>
      <legend className="strong small">{titleOf(name)}</legend>
      <div className="stack">
        {rows.length === 0 ? <p className="dim small">None.</p> : null}
        {rows.map((row, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: rows have no name but their place
          <div key={index} className="row top" style={{ borderBottom: '1px solid var(--line)', paddingBottom: 12 }}>
            <div
              className="grid grow"
              style={{ gridTemplateColumns: 'repeat(auto-fill, minmax(150px, 1fr))', alignItems: 'end' }}
            >
              {properties.map(([each, one]) => (
                <Field
                  key={each}
                  name={each}
                  pointer={`${pointer}/${index}/${each}`}
                  schema={{ ...one, description: undefined } as Schema}
                  value={row[each]}
                  problems={problems}
                  isReadOnly={isReadOnly}
                  onChange={(next) => put(index, { ...row, [each]: next })}
                />
              ))}
            </div>
            {isReadOnly ? null : (
              <ActionIcon
                variant="subtle"
                color="red"
                aria-label={`Remove ${titleOf(name)} ${index + 1}`}
                onClick={() => onChange(rows.filter((_, at) => at !== index))}
              >
                <Icon name="trash" />
              </ActionIcon>
            )}
          </div>
        ))}
        {isReadOnly ? null : (
          <div>
            <Button
              size="compact-sm"
              variant="default"
              leftSection={<Icon name="plus" size={13} />}
              onClick={() => onChange([...rows, fresh])}
            >
              Add
            </Button>
          </div>
        )}
        {problemAt(problems, pointer, false) === undefined ? null : (
          <p className="state bad">{problemAt(problems, pointer, false)}</p>
        )}
      </div>
    </fieldset>
  )
}

const simple: Record<string, (props: FieldProps) => ReactNode> = {
  text: ({ value, onChange, schema, isReadOnly, ...rest }) => (
    <TextInput
      {...commonOf({ value, onChange, schema, isReadOnly, ...rest })}
      value={String(value ?? '')}
      onChange={(event) =>
        onChange(event.currentTarget.value === '' && isNullable(schema) ? null : event.currentTarget.value)
      }
    />
  ),
  lines: (props) => (
    <Textarea
      {...commonOf(props)}
      autosize
      maxRows={12}
      value={String(props.value ?? '')}
      onChange={(event) => props.onChange(event.currentTarget.value)}
    />
  ),
  number: (props) => (
    <NumberInput
      {...commonOf(props)}
      allowDecimal={coreOf(props.schema).type === 'number'}
      value={typeof props.value === 'number' ? props.value : ''}
      onChange={(next) => props.onChange(next === '' ? null : next)}
      hideControls
    />
  ),
  choice: (props) => (
    <Select
      {...commonOf(props)}
      clearable={isNullable(props.schema)}
      data={(coreOf(props.schema).enum ?? []).map((each) => ({ value: each, label: each }))}
      value={typeof props.value === 'string' ? props.value : null}
      onChange={props.onChange}
      comboboxProps={{ withinPortal: true }}
    />
  ),
  words: (props) => (
    <Textarea
      {...commonOf(props)}
      autosize
      minRows={2}
      placeholder="One per line"
      value={Array.isArray(props.value) ? props.value.join('\n') : ''}
      onChange={(event) =>
        props.onChange(
          event.currentTarget.value.split('\n').filter((each, at, all) => each !== '' || at < all.length - 1),
        )
      }
    />
  ),
}

const commonOf = ({ name, pointer, schema, problems, isReadOnly }: FieldProps) => ({
  label: titleOf(name),
  description: hintOf(schema),
  error: problemAt(problems, pointer, true),
  readOnly: isReadOnly,
})

export function Field(props: FieldProps) {
  const { name, pointer, schema, value, problems, isReadOnly, onChange } = props
  const control = controlOf(schema)
  if (control === 'rows') return <Rows {...props} />
  if (control === 'json') return <JsonField {...props} />
  if (control === 'switch')
    return (
      <Switch
        label={titleOf(name)}
        description={hintOf(schema)}
        error={problemAt(problems, pointer, true)}
        checked={value === true}
        disabled={isReadOnly}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
    )
  const Control = simple[control]!
  return Control(props)
}

const isSame = (left: unknown, right: unknown): boolean =>
  JSON.stringify(left ?? null) === JSON.stringify(right ?? null)

interface FormProps {
  schema: Schema
  value: Value
  /** Fields that stand first, in this order; the others follow behind a fold. */
  first: readonly string[]
  hidden?: readonly string[]
  isReadOnly: boolean
  save(changes: Value): Promise<unknown>
  saved: string
}

export const SchemaForm = ({ schema, value, first, hidden = [], isReadOnly, save, saved }: FormProps) => {
  const [draft, setDraft] = useState<Value>({})
  const [problems, setProblems] = useState<readonly FieldProblem[]>([])
  const [failure, setFailure] = useState<string | null>(null)
  const [isBusy, setBusy] = useState(false)
  const [isSaved, setSaved] = useState(false)
  const changes = Object.fromEntries(Object.entries(draft).filter(([name, each]) => !isSame(each, value[name])))
  const isChanged = Object.keys(changes).length > 0
  useBlocker({
    shouldBlockFn: () => isChanged && !confirm('Leave without saving the changes?'),
    enableBeforeUnload: isChanged,
    disabled: !isChanged,
  })
  const all = Object.entries(schema.properties ?? {}).filter(
    ([name, each]) => !hidden.includes(name) && !isRefused(each),
  )
  const leading = first.flatMap((name) => all.filter(([each]) => each === name))
  const others = all.filter(([name]) => !first.includes(name))
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault()
    setBusy(true)
    setProblems([])
    setFailure(null)
    try {
      await save(changes)
      setDraft({})
      setSaved(true)
    } catch (error) {
      const { details, message } = toProblem(error)
      setProblems(details)
      setFailure(message)
    }
    setBusy(false)
  }
  const show = ([name, each]: [string, Schema]) => (
    <Field
      key={name}
      name={name}
      pointer={`/${name}`}
      schema={each}
      value={name in draft ? draft[name] : value[name]}
      problems={problems}
      isReadOnly={isReadOnly}
      onChange={(next) => {
        setSaved(false)
        setDraft({ ...draft, [name]: next })
      }}
    />
  )
  return (
    <form className="stack wide form" onSubmit={(event) => void submit(event)}>
      {leading.map(show)}
      {others.length === 0 ? null : (
        <details className="stack">
          <summary className="strong">More settings</summary>
          <div className="stack wide" style={{ marginTop: 14 }}>
            {others.map(show)}
          </div>
        </details>
      )}
      {failure === null ? null : (
        <div className="note bad" role="alert">
          {failure}
        </div>
      )}
      {isReadOnly ? null : (
        <div className="row">
          <Button type="submit" disabled={!isChanged} loading={isBusy}>
            Save
          </Button>
          {isChanged ? (
            <Button variant="default" onClick={() => setDraft({})}>
              Discard
            </Button>
          ) : null}
          <span role="status" className="dim">
            {isSaved && !isChanged ? saved : ''}
          </span>
        </div>
      )}
    </form>
  )
}
