/**
 * The variables of a project, an environment or a service: the value that counts, where it comes from, and whether the
 * page may change it. Values of secrets are written and never read.
 */

import { ActionIcon, Button, Checkbox, Menu, Modal, SegmentedControl, Textarea, TextInput } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { memo, useDeferredValue, useMemo, useState } from 'react'
import { answerOf, client, inPath, resultsOf, type Schemas, toProblem } from '../api/client.ts'
import { refresh } from '../api/queries.ts'
import { DialogButtons } from './dialog.tsx'
import { FilterField } from './filter-field.tsx'
import { Icon } from './icons.tsx'
import { Answer, Empty } from './notices.tsx'
import { useMay } from './place.ts'
import { Scroll } from './scroll.tsx'
import { submitting } from './submitting.ts'
import { tellProblem } from './toasts.tsx'
import { useTellReach, type VariablesPlace } from './variable-reach.ts'
import { VariablesText } from './variables-text.tsx'
import { type RowPlace, VirtualRows } from './virtual-rows.tsx'

type Variable = Schemas['Variable']
type Place = VariablesPlace

const collator = new Intl.Collator()

/** User-defined variables before built-in ones. */
const byName = (a: Variable, b: Variable): number =>
  Number(a.scope === 'BUILT_IN') - Number(b.scope === 'BUILT_IN') || collator.compare(a.key, b.key)

const useVariables = ({ scope, parentId }: Place) =>
  useQuery({
    queryKey: ['variables', parentId],
    async queryFn() {
      const asked = client.GET('/variable', { params: { query: { parent_id: parentId, scope } as never } })
      // Sorted here, not where they are shown: for thousands this takes some milliseconds each time the page is opened.
      return (await resultsOf(asked)).toSorted(byName)
    },
  })

const scopeWords: Record<string, string> = {
  BUILT_IN: 'built in',
  PROJECT: 'project',
  ENVIRONMENT: 'environment',
  APPLICATION: 'service',
  CONTAINER: 'service',
  JOB: 'service',
  HELM: 'service',
  TERRAFORM: 'service',
}

const originOf = ({
  scope,
  variable_type: type,
  aliased_variable: aliased,
  overridden_variable: overridden,
  service_name: name,
}: Variable): string[] => [
  scope === 'BUILT_IN' && name !== undefined ? `built in, of ${name}` : (scopeWords[scope] ?? scope.toLowerCase()),
  ...(aliased === undefined ? [] : [`alias of ${aliased.key}`]),
  ...(overridden === undefined ? [] : ['overrides']),
  ...(type === 'FILE' ? ['file'] : []),
  ...(type === 'EXTERNAL_SECRET' ? ['from a secret manager'] : []),
]

const isOwn = ({ scope }: Variable, place: Place): boolean => scope === place.scope

const Editor = ({ place, variable, onClose }: { place: Place; variable: Variable | null; onClose(): void }) => {
  const tellReach = useTellReach(place)
  const [key, setKey] = useState(variable?.key ?? '')
  const [value, setValue] = useState(variable?.value ?? '')
  const [isSecret, setSecret] = useState(variable?.is_secret ?? false)
  const saving = useMutation({
    async mutationFn() {
      if (variable !== null) {
        const body = { key, value }
        return answerOf(client.PUT('/variable/{variableId}', { params: { path: { variableId: variable.id } }, body }))
      }
      const body = { key, value, is_secret: isSecret, variable_scope: place.scope, variable_parent_id: place.parentId }
      return answerOf(client.POST('/variable', { body }))
    },
    onSuccess() {
      tellReach(`${key} was saved.`)
      void refresh('variables')
      onClose()
    },
  })
  const { details = [], message } = saving.error === null ? {} : toProblem(saving.error)
  const at = (field: string): string | undefined => details.find((each) => each.field === field)?.message
  const isPlaced = at('/key') !== undefined || at('/value') !== undefined
  return (
    <Modal
      opened
      onClose={onClose}
      title={variable === null ? 'New variable' : <span className="wrap">{variable.key}</span>}
      size="lg"
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <form className="stack" onSubmit={submitting(() => saving.mutate())}>
        <TextInput
          label="Key"
          required
          data-autofocus={variable === null || undefined}
          value={key}
          onChange={(event) => setKey(event.currentTarget.value)}
          error={at('/key')}
          styles={{ input: { fontFamily: 'var(--mono)' } }}
        />
        <Textarea
          label="Value"
          description={
            variable?.is_secret === true ? 'A secret is never shown: what you write replaces it.' : undefined
          }
          data-autofocus={variable !== null || undefined}
          autosize
          maxRows={14}
          value={value}
          onChange={(event) => setValue(event.currentTarget.value)}
          error={at('/value')}
          styles={{ input: { fontFamily: 'var(--mono)' } }}
        />
        {variable === null ? (
          <Checkbox
            label="Secret: cannot be read again, here or in the API"
            checked={isSecret}
            onChange={(event) => setSecret(event.currentTarget.checked)}
          />
        ) : null}
        {message === undefined || isPlaced ? null : (
          <div className="note bad" role="alert">
            {message}
          </div>
        )}
        <DialogButtons onClose={onClose}>
          <Button type="submit" loading={saving.isPending} disabled={key === ''}>
            Save
          </Button>
        </DialogButtons>
      </form>
    </Modal>
  )
}

const Remove = ({ place, variable, onClose }: { place: Place; variable: Variable; onClose(): void }) => {
  const tellReach = useTellReach(place)
  const removing = useMutation({
    mutationFn: () => answerOf(client.DELETE('/variable/{variableId}', inPath({ variableId: variable.id }))),
    onSuccess() {
      tellReach(`${variable.key} was deleted.`)
      void refresh('variables')
      onClose()
    },
    onError: tellProblem,
  })
  return (
    <Modal opened onClose={onClose} title="Delete a variable" closeButtonProps={{ 'aria-label': 'Close' }}>
      <div className="stack">
        <p>
          <code className="wrap">{variable.key}</code> goes with its aliases and overrides. What runs keeps it until the
          next deployment.
        </p>
        <DialogButtons onClose={onClose}>
          <Button color="red" loading={removing.isPending} onClick={() => removing.mutate()} data-autofocus>
            Delete
          </Button>
        </DialogButtons>
      </div>
    </Modal>
  )
}

const Value = ({ variable }: { variable: Variable }) => {
  if (variable.is_secret) return <span className="dim">secret</span>
  const text = variable.value ?? ''
  return (
    <code className="clip" style={{ display: 'block', maxWidth: 420 }} title={text.slice(0, 2000)}>
      {text === '' ? <span className="dim">empty</span> : text.slice(0, 300)}
    </code>
  )
}

type Open = { edit: Variable | null } | { remove: Variable } | 'import' | 'text' | null

interface RowMenuProps {
  variable: Variable
  mayDelete: boolean
  open(what: Open): void
}

const RowMenu = ({ variable, mayDelete, open }: RowMenuProps) => (
  <Menu position="bottom-end">
    <Menu.Target>
      <ActionIcon variant="subtle" color="gray" aria-label={`Actions for ${variable.key}`}>
        <Icon name="dots" />
      </ActionIcon>
    </Menu.Target>
    <Menu.Dropdown>
      <Menu.Item onClick={() => open({ edit: variable })}>Edit</Menu.Item>
      {mayDelete ? (
        <Menu.Item color="red" onClick={() => open({ remove: variable })}>
          Delete
        </Menu.Item>
      ) : null}
    </Menu.Dropdown>
  </Menu>
)

interface RowProps {
  variable: Variable
  place: RowPlace
  /** Null if it is read-only. */
  mayDelete: boolean | null
  open(what: Open): void
}

const VariableRow = memo(({ variable, place, mayDelete, open }: RowProps) => (
  <tr {...place}>
    <td style={{ minWidth: 150, maxWidth: 340 }}>
      <code className="wrap strong">{variable.key}</code>
    </td>
    <td className="value">
      <Value variable={variable} />
    </td>
    <td className="dim small wrap optional">{originOf(variable).join(', ')}</td>
    <td className="tight">
      {mayDelete === null ? null : <RowMenu variable={variable} mayDelete={mayDelete} open={open} />}
    </td>
  </tr>
))

const Table = ({ rows, place, open }: { rows: readonly Variable[]; place: Place; open(what: Open): void }) => {
  const may = useMay()
  const [mayWrite, mayDelete] = [may('write'), may('delete')]
  return (
    <Scroll label="Variables" isCard>
      <table className="list">
        <thead>
          <tr>
            <th>Key</th>
            <th>Value</th>
            <th className="optional">From</th>
            <th className="tight">
              <span className="hidden-text">Actions</span>
            </th>
          </tr>
        </thead>
        <VirtualRows rows={rows} keyOf={({ id }) => id} height={47} columns={4}>
          {(variable, rowPlace) => (
            <VariableRow
              variable={variable}
              place={rowPlace}
              mayDelete={mayWrite && isOwn(variable, place) ? mayDelete : null}
              open={open}
            />
          )}
        </VirtualRows>
      </table>
    </Scroll>
  )
}

type Shown = 'own' | 'all'

export const Variables = (place: Place) => {
  const may = useMay()
  const variables = useVariables(place)
  const [search, setSearch] = useState('')
  const [shown, setShown] = useState<Shown>('all')
  const [opened, open] = useState<Open>(null)
  const wanted = useDeferredValue(search).toLowerCase()
  const { scope } = place
  const rows = useMemo(
    () =>
      (variables.data ?? []).filter(
        (each) =>
          (shown === 'all' || each.scope === scope) && (wanted === '' || each.key.toLowerCase().includes(wanted)),
      ),
    [variables.data, shown, wanted, scope],
  )
  const own = useMemo(() => (variables.data ?? []).filter((each) => each.scope === scope), [variables.data, scope])
  return (
    <div className="stack">
      <div className="row wraps">
        <FilterField label="Filter variables" value={search} onChange={setSearch} />
        <SegmentedControl
          aria-label="Which variables"
          value={shown}
          onChange={(value) => setShown(value as Shown)}
          data={[
            { value: 'all', label: 'In effect' },
            { value: 'own', label: 'Set here' },
          ]}
        />
        {may('write') ? (
          <span className="row wraps push">
            <Button variant="default" onClick={() => open('text')}>
              Edit as text
            </Button>
            <Button variant="default" onClick={() => open('import')}>
              Import .env
            </Button>
            <Button leftSection={<Icon name="plus" size={14} />} onClick={() => open({ edit: null })}>
              New variable
            </Button>
          </span>
        ) : null}
      </div>
      <Answer of={variables}>
        {() =>
          rows.length === 0 ? (
            wanted === '' ? (
              <Empty title={shown === 'own' ? 'No variables are set here' : 'No variables'}>
                <p>A new one reaches services as an environment variable at their next deployment.</p>
              </Empty>
            ) : (
              <Empty title="No variable matches the filter" />
            )
          ) : (
            <Table rows={rows} place={place} open={open} />
          )
        }
      </Answer>
      {opened === 'import' || opened === 'text' ? (
        <VariablesText place={place} own={own} isImport={opened === 'import'} onClose={() => open(null)} />
      ) : null}
      {opened !== null && typeof opened === 'object' && 'edit' in opened ? (
        <Editor place={place} variable={opened.edit} onClose={() => open(null)} />
      ) : null}
      {opened !== null && typeof opened === 'object' && 'remove' in opened ? (
        <Remove place={place} variable={opened.remove} onClose={() => open(null)} />
      ) : null}
    </div>
  )
}
