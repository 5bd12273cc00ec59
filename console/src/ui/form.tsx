/**
 * Forms made from the schemas of the API, which also says which field is wrong. Only changed fields are sent, so
 * another person's change of another field is kept.
 */
import { Button } from '@mantine/core'
import { useBlocker } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { type FieldProblem, toProblem } from '../api/client.ts'
import { ProblemNote } from './dialog.tsx'
import { Field } from './field.tsx'
import { isRefused, type Schema } from './schema.ts'

type Value = Record<string, unknown>

const isSame = (left: unknown, right: unknown): boolean =>
  JSON.stringify(left ?? null) === JSON.stringify(right ?? null)

interface FormProps {
  schema: Schema
  value: Value
  /** Fields that are shown first, in this order; the others are folded away. */
  first: readonly string[]
  hidden?: readonly string[]
  isReadOnly: boolean
  save(changes: Value): Promise<unknown>
  saved: string
}

export const SchemaForm = ({ schema, value, first, hidden = [], isReadOnly, save, saved }: FormProps) => {
  const [draft, setDraft] = useState<Value>({})
  const [problems, setProblems] = useState<readonly FieldProblem[]>([])
  const [failure, setFailure] = useState<unknown>(null)
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
      setProblems(toProblem(error).details)
      setFailure(error)
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
      {isReadOnly ? <p className="dim">You may read these settings, but not change them.</p> : null}
      {leading.map(show)}
      {others.length === 0 ? null : (
        <details className="stack">
          <summary className="strong">More settings</summary>
          <div className="stack wide" style={{ marginTop: 14 }}>
            {others.map(show)}
          </div>
        </details>
      )}
      <ProblemNote error={failure} />
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
