/**
 * Variables as the text of a `.env` file: many are changed at once, or pasted and imported. The changes are listed
 * below the text before they are made. The text is read by the rules of the server.
 */

import { Button, Checkbox, Textarea } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { useMemo, useState } from 'react'
import { parseDotenv } from '../../../server/src/variables/dotenv.ts'
import { answerOf, client, inPath, type Schemas } from '../api/client.ts'
import { refresh } from '../api/queries.ts'
import { DialogButtons, DialogFrame, ProblemNote } from './dialog.tsx'
import { useMay } from './place.ts'
import { submitting } from './submitting.ts'
import { useTellReach, type VariablesPlace } from './variable-reach.ts'

type Variable = Schemas['Variable']

/** A variable of this place, with a readable value and not a file: the others have their own dialog. */
const isPlain = ({ is_secret, value, mount_path, aliased_variable, overridden_variable, variable_type }: Variable) =>
  !is_secret &&
  value !== null &&
  mount_path === null &&
  aliased_variable === undefined &&
  overridden_variable === undefined &&
  variable_type === 'VALUE'

const letters: Record<string, string> = { '\n': 'n', '\r': 'r', '\t': 't' }

/** Without quotes if the value survives that, else in double quotes. */
const printed = (value: string): string =>
  /^[^\s"'`#\\]([^"'`#\\\n\r]*[^\s"'`#\\])?$/.test(value)
    ? value
    : `"${value.replaceAll(/["\\\n\r\t]/g, (each) => `\\${letters[each] ?? each}`)}"`

const printVariables = (variables: readonly Variable[]): string =>
  variables.map(({ key, value }) => `${key}=${value === '' ? '' : printed(value ?? '')}`).join('\n')

interface Entry {
  key: string
  value: string
}

interface Difference {
  fresh: Entry[]
  changed: (Entry & { before: string | null })[]
  removed: Variable[]
}

const differenceOf = (entries: readonly Entry[], own: readonly Variable[], removes: boolean): Difference => {
  const byKey = new Map(own.map((each) => [each.key, each]))
  const keys = new Set(entries.map(({ key }) => key))
  return {
    fresh: entries.filter(({ key }) => !byKey.has(key)),
    changed: entries.flatMap((entry) => {
      const found = byKey.get(entry.key)
      return found === undefined || (!found.is_secret && found.value === entry.value)
        ? []
        : [{ ...entry, before: found.is_secret ? null : (found.value ?? '') }]
    }),
    removed: removes ? own.filter((each) => isPlain(each) && !keys.has(each.key)) : [],
  }
}

const read = (text: string): Entry[] | Error => {
  try {
    return parseDotenv(text)
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error))
  }
}

const countOf = ({ fresh, changed, removed }: Difference): number => fresh.length + changed.length + removed.length

const short = (value: string): string => (value.length > 120 ? `${value.slice(0, 120)} …` : value)
const mostShown = 200

const Preview = ({
  difference: { fresh, changed, removed },
  isSecret,
}: {
  difference: Difference
  isSecret: boolean
}) => {
  const count = countOf({ fresh, changed, removed })
  const shown = (value: string | null): string => (isSecret || value === null ? 'secret' : short(value))
  if (count === 0) return <p className="dim">Nothing would change.</p>
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling element must be reachable by keyboard
    <section className="stack tight plan" tabIndex={0} aria-label="What would change">
      <p className="dim small" role="status">
        {fresh.length} new, {changed.length} changed, {removed.length} removed. Services have them with their next
        deployment.
      </p>
      <div className="diff">
        {fresh.slice(0, mostShown).map(({ key, value }) => (
          <div key={key} style={{ display: 'contents' }}>
            <code className="wrap">{key}</code>
            <ins className="to wrap mono" style={{ textDecoration: 'none' }}>
              {shown(value)}
            </ins>
          </div>
        ))}
        {changed.slice(0, mostShown).map(({ key, value, before }) => (
          <div key={key} style={{ display: 'contents' }}>
            <code className="wrap">{key}</code>
            <span className="wrap mono">
              <del className="from">{shown(before)}</del> <span aria-hidden="true">→</span>
              <span className="hidden-text">becomes</span>{' '}
              <ins className="to" style={{ textDecoration: 'none' }}>
                {shown(value)}
              </ins>
            </span>
          </div>
        ))}
        {removed.slice(0, mostShown).map(({ id, key, value }) => (
          <div key={id} style={{ display: 'contents' }}>
            <code className="wrap">{key}</code>
            <del className="from wrap mono">{shown(value)}</del>
          </div>
        ))}
      </div>
    </section>
  )
}

const apply = async (
  place: VariablesPlace,
  { fresh, changed, removed }: Difference,
  isSecret: boolean,
): Promise<void> => {
  for (const { key, value } of [...fresh, ...changed])
    await answerOf(
      client.POST('/variable', {
        body: { key, value, is_secret: isSecret, variable_scope: place.scope, variable_parent_id: place.parentId },
      }),
    )
  for (const { id } of removed) await answerOf(client.DELETE('/variable/{variableId}', inPath({ variableId: id })))
}

interface Props {
  place: VariablesPlace
  /** Those that are set here. */
  own: readonly Variable[]
  /** `import`: starts empty, and variables that are not in the text are kept. */
  isImport: boolean
  onClose(): void
}

export const VariablesText = ({ place, own, isImport, onClose }: Props) => {
  const tellReach = useTellReach(place)
  const mayDelete = useMay()('delete')
  const [text, setText] = useState(() => (isImport ? '' : printVariables(own.filter(isPlain))))
  const [isSecret, setSecret] = useState(false)
  const entries = useMemo(() => read(text), [text])
  const difference = useMemo(
    () => (entries instanceof Error ? null : differenceOf(entries, own, !isImport && mayDelete)),
    [entries, own, isImport, mayDelete],
  )
  const count = difference === null ? 0 : countOf(difference)
  const saving = useMutation({
    mutationFn: (asked: Difference) => apply(place, asked, isSecret),
    // The requested changes: the difference shrinks while they are written.
    onSuccess(_answer, asked) {
      const written = countOf(asked)
      tellReach(`${written} ${written === 1 ? 'variable was' : 'variables were'} ${isImport ? 'imported' : 'saved'}.`)
      onClose()
    },
    // Changes before a failure are made: the preview then shows the rest.
    onSettled: () => void refresh('variables'),
  })
  return (
    <DialogFrame title={isImport ? 'Import a .env file' : 'Edit as text'} size="xl" onClose={onClose}>
      <form className="stack" onSubmit={submitting(() => saving.mutate(difference!))}>
        <Textarea
          label="Variables"
          description={
            isImport
              ? 'As in a .env file. What is not in it stays as it is.'
              : mayDelete
                ? 'What you remove is deleted. Secrets, files, aliases and overrides are not in it.'
                : 'Secrets, files, aliases and overrides are not in it.'
          }
          data-autofocus
          autosize
          minRows={6}
          maxRows={16}
          placeholder={'KEY=value\nOTHER="with spaces"'}
          value={text}
          error={entries instanceof Error ? entries.message : undefined}
          onChange={(event) => setText(event.currentTarget.value)}
          styles={{ input: { fontFamily: 'var(--mono)' } }}
        />
        {isImport ? (
          <>
            <label className="small">
              Or choose a file:{' '}
              <input
                type="file"
                onChange={(event) => void event.currentTarget.files?.[0]?.text().then((found) => setText(found))}
              />
            </label>
            <Checkbox
              label="All of them are secrets"
              checked={isSecret}
              onChange={(event) => setSecret(event.currentTarget.checked)}
            />
          </>
        ) : null}
        {difference === null || (isImport && text === '') ? null : (
          <Preview difference={difference} isSecret={isSecret} />
        )}
        <ProblemNote error={saving.error} />
        <DialogButtons onClose={onClose}>
          <Button type="submit" loading={saving.isPending} disabled={count === 0}>
            {isImport ? `Import ${count === 0 ? '' : count}` : `Save ${count === 0 ? '' : count}`}
          </Button>
        </DialogButtons>
      </form>
    </DialogFrame>
  )
}
