/** One field of a form, made from its schema; members of an object or a list have their own fields. */

import { ActionIcon, NumberInput, Select, Switch, Textarea, TextInput } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { client, type FieldProblem, inPath, pathLike, resultsOf } from '../api/client.ts'
import { Icon } from './icons.tsx'
import { usePlace } from './place.ts'
import { namesOf } from './record-form.tsx'
import { controlOf, coreOf, effectOf, isNullable, isRefused, type Schema, titleOf, wordOfValue } from './schema.ts'
import { SmallButton } from './small-button.ts'

type Value = Record<string, unknown>

interface FieldProps {
  name: string
  /** JSON pointer, as the API names fields in its errors. */
  pointer: string
  schema: Schema
  value: unknown
  problems: readonly FieldProblem[]
  isReadOnly: boolean
  isRequired?: boolean
  onChange(value: unknown): void
}

const problemAt = (problems: readonly FieldProblem[], pointer: string, within: boolean): string | undefined =>
  problems.find(({ field }) => field === pointer || (within && field.startsWith(`${pointer}/`)))?.message

const effectWords = {
  acts: 'Takes effect',
  kubernetes: 'Only on Kubernetes',
  recorded: 'Only recorded',
  refused: 'Refused here',
}

export const EffectChip = ({ schema }: { schema: Schema }) => {
  const effect = effectOf(schema)
  return <span className={`chip ${effect === 'acts' ? 'good' : 'warn'}`}>{effectWords[effect]}</span>
}

/** A sentence of the API, with names of fields in backticks. */
export const Sentence = ({ text }: { text: string }) =>
  text
    .split('`')
    // biome-ignore lint/suspicious/noArrayIndexKey: parts of a text have no name but their place
    .map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part))

/** The chip already shows the sentence about the effect. */
const hintOf = ({ description }: Schema): ReactNode => {
  const text = description?.replace(
    /^(Stored and returned|Accepted, but not stored); has no effect on this server\. ?/,
    '',
  )
  return text ? <Sentence text={text} /> : undefined
}

const labelOf = (name: string, schema: Schema): ReactNode =>
  effectOf(schema) === 'acts' ? (
    titleOf(name)
  ) : (
    <>
      {titleOf(name)} <EffectChip schema={schema} />
    </>
  )

/** The initial value of an object: the defaults of its fields. */
const beginningOf = (schema: Schema): Value =>
  Object.fromEntries(
    Object.entries(schema.properties ?? {}).flatMap(([name, one]) =>
      one.default === undefined || isRefused(one) ? [] : [[name, one.default]],
    ),
  )

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
      label={labelOf(name, schema)}
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
  const fresh = beginningOf(coreOf(schema).items ?? {})
  return (
    <fieldset className="card group">
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
            <SmallButton leftSection={<Icon name="plus" size={13} />} onClick={() => onChange([...rows, fresh])}>
              Add
            </SmallButton>
          </div>
        )}
        {problemAt(problems, pointer, false) === undefined ? null : (
          <p className="state bad">{problemAt(problems, pointer, false)}</p>
        )}
      </div>
    </fieldset>
  )
}

/** An object: its fields, if it is set. */
const Group = ({ name, pointer, schema, value, problems, isReadOnly, onChange }: FieldProps) => {
  const core = coreOf(schema)
  const isSet = typeof value === 'object' && value !== null
  const held = isSet ? (value as Value) : {}
  const fields = Object.entries(core.properties ?? {}).filter(([, one]) => !isRefused(one))
  const required = new Set(core.required ?? [])
  return (
    <fieldset className="card group">
      <legend className="strong small">{labelOf(name, schema)}</legend>
      <div className="stack">
        {hintOf(schema) === undefined ? null : <p className="dim small">{hintOf(schema)}</p>}
        {isNullable(schema) ? (
          <Switch
            label="Set"
            checked={isSet}
            disabled={isReadOnly}
            onChange={(event) => onChange(event.currentTarget.checked ? beginningOf(core) : null)}
          />
        ) : null}
        {isSet || !isNullable(schema)
          ? fields.map(([each, one]) => (
              <Field
                key={each}
                name={each}
                pointer={`${pointer}/${each}`}
                schema={one}
                value={held[each] ?? one.default}
                isRequired={required.has(each)}
                problems={problems}
                isReadOnly={isReadOnly}
                onChange={(next) => onChange({ ...held, [each]: next })}
              />
            ))
          : null}
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
      data={(coreOf(props.schema).enum ?? []).map((each) => ({ value: each, label: wordOfValue(each) }))}
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

const commonOf = ({ name, pointer, schema, problems, isReadOnly, isRequired = false }: FieldProps) => ({
  label: labelOf(name, schema),
  description: hintOf(schema),
  error: problemAt(problems, pointer, true),
  readOnly: isReadOnly,
  required: isRequired,
})

/** The records that a field refers to by id, and where they are listed. */
const references: Record<string, string> = { registry_id: 'containerRegistry', git_token_id: 'gitToken' }

const Reference = (props: FieldProps) => {
  const path = references[props.name]!
  const { organizationId } = usePlace()
  const { data = [] } = useQuery({
    queryKey: [path, organizationId],
    queryFn: async () => {
      const address = pathLike('/organization/{organizationId}/containerRegistry', 'containerRegistry', path)
      const asked = client.GET(address, inPath({ organizationId: organizationId! }))
      return resultsOf(asked)
    },
    enabled: organizationId !== undefined,
  })
  const value = typeof props.value === 'string' && props.value !== '' ? props.value : null
  const known = namesOf(data)
  const isKnown = value === null || known.some((each) => each.value === value)
  return (
    <Select
      {...commonOf(props)}
      clearable={!(props.isRequired ?? false)}
      data={isKnown ? known : [...known, { value, label: value }]}
      value={value}
      onChange={props.onChange}
    />
  )
}

export function Field(props: FieldProps) {
  const { name, pointer, schema, value, problems, isReadOnly, onChange } = props
  const control = controlOf(schema)
  if (control === 'text' && Object.hasOwn(references, name)) return <Reference {...props} />
  if (control === 'rows') return <Rows {...props} />
  if (control === 'group') return <Group {...props} />
  if (control === 'json') return <JsonField {...props} />
  if (control === 'switch')
    return (
      <Switch
        label={labelOf(name, schema)}
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
