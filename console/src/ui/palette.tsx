/** Search for everything by name: projects, environments, services of opened environments, and pages. */
import { Modal, TextInput } from '@mantine/core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { type KeyboardEvent, useEffect, useId, useMemo, useRef, useState } from 'react'
import * as read from '../api/queries.ts'
import { addressOf } from './crumbs.tsx'
import { wordsFor } from './organization-sections.ts'
import type { Place } from './place.ts'

interface Item {
  name: string
  kind: string
  to?: string
  run?: () => void
}

const most = 60

const fits = ({ name, kind }: Item, words: readonly string[]): boolean => {
  const text = `${name} ${kind}`.toLowerCase()
  return words.every((word) => text.includes(word))
}

/** Services of the environments that were opened: others are found through their environment. */
const useServices = (): Item[] => {
  const queries = useQueryClient()
  return useMemo(
    () =>
      queries
        .getQueriesData<read.Service[]>({ queryKey: ['services'] })
        .flatMap(([, list]) => list ?? [])
        .flatMap((each) => [
          { name: each.name, kind: each.kind, to: addressOf(each) },
          { name: `${each.name}: logs`, kind: 'page', to: addressOf(each, 'logs') },
          { name: `${each.name}: variables`, kind: 'page', to: addressOf(each, 'variables') },
        ]),
    [queries],
  )
}

const pagesOf = ({ organizationId, environmentId }: Place, isOperator: boolean, onHelp: () => void): Item[] => [
  ...(environmentId === undefined
    ? []
    : [
        { name: 'Create a service', kind: 'action', to: `/e/${environmentId}/new/image` },
        { name: 'Deployments of this environment', kind: 'page', to: `/e/${environmentId}/deployments` },
        { name: 'Variables of this environment', kind: 'page', to: `/e/${environmentId}/variables` },
      ]),
  ...(organizationId === undefined
    ? []
    : Object.entries(wordsFor(isOperator)).map(([section, word]) => ({
        name: `Organization: ${word}`,
        kind: 'page',
        to: `/o/${organizationId}/${section}`,
      }))),
  { name: 'Keyboard shortcuts', kind: 'help', run: onHelp },
]

const useItems = (place: Place, onHelp: () => void): Item[] => {
  const { organizationId = '' } = place
  const enabled = organizationId !== ''
  const { data: session } = useQuery(read.session())
  const { data: projects = [] } = useQuery({ ...read.projects(organizationId), enabled })
  const { data: environments = [] } = useQuery({ ...read.environmentsOfOrganization(organizationId), enabled })
  const services = useServices()
  const nameOf = new Map(projects.map(({ id, name }) => [id, name]))
  return [
    ...services,
    ...environments.map(({ id, name, project }) => ({
      name: `${nameOf.get(project.id) ?? ''} / ${name}`,
      kind: 'environment',
      to: `/e/${id}/services`,
    })),
    ...projects.map(({ id, name }) => ({ name, kind: 'project', to: `/p/${id}/environments` })),
    ...pagesOf(place, session?.is_operator === true, onHelp),
  ]
}

export const Palette = ({ place, onClose, onHelp }: { place: Place; onClose(): void; onHelp(): void }) => {
  const [text, setText] = useState('')
  const [at, setAt] = useState(0)
  const navigate = useNavigate()
  const listId = useId()
  const list = useRef<HTMLDivElement>(null)
  const all = useItems(place, onHelp)
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  const items = all.filter((item) => fits(item, words)).slice(0, most)
  const chosen = Math.min(at, items.length - 1)
  useEffect(() => {
    list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: 'nearest' })
  })
  const open = (item: Item | undefined): void => {
    if (item === undefined) return
    onClose()
    if (item.to === undefined) item.run?.()
    else void navigate({ to: item.to })
  }
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step !== undefined) {
      event.preventDefault()
      setAt((chosen + step + items.length) % Math.max(1, items.length))
    } else if (event.key === 'Enter') open(items[chosen])
  }
  return (
    <Modal
      opened
      onClose={onClose}
      withCloseButton={false}
      size="lg"
      yOffset="12vh"
      centered={false}
      title={<span className="hidden-text">Search</span>}
      padding="md"
      styles={{ header: { display: 'none' }, body: { paddingTop: 16 } }}
    >
      <TextInput
        data-autofocus
        aria-label="Search resources and actions"
        role="combobox"
        aria-expanded="true"
        aria-controls={listId}
        aria-activedescendant={items.length === 0 ? undefined : `${listId}-${chosen}`}
        placeholder="Search resources and actions"
        value={text}
        onChange={(event) => {
          setText(event.currentTarget.value)
          setAt(0)
        }}
        onKeyDown={onKeyDown}
        size="md"
      />
      <div className="palette-list" id={listId} role="listbox" aria-label="Found" ref={list}>
        {items.map((item, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are those of the field above
          // biome-ignore lint/a11y/useFocusableInteractive: the field above keeps the focus
          <div
            key={`${item.kind} ${item.to ?? item.name} ${item.name}`}
            id={`${listId}-${index}`}
            role="option"
            aria-selected={index === chosen}
            className="palette-item"
            onClick={() => open(item)}
            onMouseMove={() => setAt(index)}
          >
            <span className="grow clip">{item.name}</span>
            <span className="dim small">{item.kind}</span>
          </div>
        ))}
        {items.length === 0 ? <p className="dim palette-item">Nothing of this name.</p> : null}
      </div>
    </Modal>
  )
}
