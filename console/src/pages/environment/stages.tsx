/** The stages in which an environment is deployed: services are dragged between them, or moved by keyboard. */
import { ActionIcon, Menu } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { type DragEvent, type KeyboardEvent, useEffect, useRef, useState } from 'react'
import { answerOf, client, inPath, pathLike, resultsOf, type Schemas } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { FormDialog, NewButton } from '../../ui/dialog.tsx'
import { Icon } from '../../ui/icons.tsx'
import { Answer } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { RecordForm } from '../../ui/record-form.tsx'
import { stageName } from '../../ui/stage-name.ts'
import { tellProblem } from '../../ui/toasts.tsx'

type Stage = Schemas['DeploymentStage']

const useStages = (environmentId: string) =>
  useQuery({
    queryKey: ['stages', environmentId],
    queryFn: () => resultsOf(client.GET('/environment/{environmentId}/deploymentStage', inPath({ environmentId }))),
  })

interface Move {
  what: 'service' | 'stage'
  id: string
  /** A stage: for a service its target, for a stage the one before or after which it is put. */
  to: string
  isAfter?: boolean
  isSkipped?: boolean
  /** The announcement about it. */
  said: string
}

const send = ({ what, id, to, isAfter, isSkipped }: Move) => {
  if (what === 'service')
    return answerOf(
      client.PUT('/deploymentStage/{deploymentStageId}/service/{serviceId}', {
        params: { path: { deploymentStageId: to, serviceId: id } },
        body: { is_skipped: isSkipped === true },
      }),
    )
  const path = pathLike(
    '/deploymentStage/{deploymentStageId}/moveAfter/{stageId}',
    'moveAfter',
    isAfter === true ? 'moveAfter' : 'moveBefore',
  )
  return answerOf(client.PUT(path, inPath({ deploymentStageId: id, stageId: to })))
}

const dragType = 'application/x-slipway'

interface BoardProps {
  stages: readonly Stage[]
  names: ReadonlyMap<string, string>
  /** Absent without the right to change it. */
  move?: ((move: Move) => void) | undefined
}

interface ItemProps extends BoardProps {
  stage: Stage
  at: number
  service: Stage['services'][number]
}

const Item = ({ stages, names, move, stage, at, service }: ItemProps) => {
  const { service_id: id, is_skipped: isSkipped } = service
  const name = names.get(id) ?? 'a service'
  const go = (to: Stage, skip = false): void =>
    move?.({ what: 'service', id, to: to.id, isSkipped: skip, said: `${name} is in ${stageName(to.name)}.` })
  const onKeyDown = (event: KeyboardEvent): void => {
    const to = stages[at + ({ ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? Number.NaN)]
    if (to === undefined) return
    event.preventDefault()
    go(to)
  }
  const body = (
    <>
      <span className="clip grow">{name}</span>
      {isSkipped ? <span className="chip">skipped</span> : null}
    </>
  )
  if (move === undefined) return <div className="card choice row stage-item">{body}</div>
  return (
    <Menu>
      <Menu.Target>
        <button
          type="button"
          className="card choice row stage-item"
          data-service={id}
          draggable
          onKeyDown={onKeyDown}
          onDragStart={(event) => event.dataTransfer.setData(dragType, JSON.stringify({ what: 'service', id, name }))}
        >
          {body}
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>Move to</Menu.Label>
        {stages
          .filter((each) => each.id !== stage.id)
          .map((each) => (
            <Menu.Item key={each.id} onClick={() => go(each)}>
              <span className="clip">{stageName(each.name)}</span>
            </Menu.Item>
          ))}
        <Menu.Divider />
        <Menu.Item onClick={() => go(stage, !isSkipped)}>
          {isSkipped ? 'Deploy it with the environment' : 'Skip it when the environment is deployed'}
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  )
}

interface ColumnProps extends BoardProps {
  stage: Stage
  at: number
  onRename(): void
  onRemove(): void
}

const StageMenu = ({ stages, move, stage, at, onRename, onRemove }: ColumnProps) => {
  const may = useMay()
  const beside = (to: Stage | undefined, isAfter: boolean) =>
    to === undefined
      ? undefined
      : () => move?.({ what: 'stage', id: stage.id, to: to.id, isAfter, said: `${stageName(stage.name)} was moved.` })
  const [earlier, later] = [beside(stages[at - 1], false), beside(stages[at + 1], true)]
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" aria-label={`Actions for ${stageName(stage.name)}`}>
          <Icon name="dots" />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {earlier === undefined ? null : <Menu.Item onClick={earlier}>Move earlier</Menu.Item>}
        {later === undefined ? null : <Menu.Item onClick={later}>Move later</Menu.Item>}
        <Menu.Item onClick={onRename}>Rename</Menu.Item>
        {stage.services.length === 0 && stages.length > 1 && may('delete') ? (
          <Menu.Item color="red" onClick={onRemove}>
            Delete
          </Menu.Item>
        ) : null}
      </Menu.Dropdown>
    </Menu>
  )
}

const Column = (props: ColumnProps) => {
  const { names, move, stage, at } = props
  const drop = (event: DragEvent): void => {
    event.preventDefault()
    const text = event.dataTransfer.getData(dragType)
    if (text === '') return
    const { what, id, name } = JSON.parse(text) as { what: Move['what']; id: string; name: string }
    if (id === stage.id || stage.services.some(({ service_id }) => service_id === id)) return
    const from = props.stages.findIndex((each) => each.id === id)
    const place = stageName(stage.name)
    move?.({ what, id, to: stage.id, isAfter: from < at, said: `${name} was moved to ${place}.` })
  }
  return (
    <section
      className="card stage stack tight"
      aria-label={stageName(stage.name)}
      onDragOver={(event) => move !== undefined && event.preventDefault()}
      onDrop={drop}
    >
      {/* biome-ignore lint/a11y/noStaticElementInteractions: its menu does the same */}
      <div
        className="row"
        draggable={move !== undefined}
        onDragStart={(event) =>
          event.dataTransfer.setData(
            dragType,
            JSON.stringify({ what: 'stage', id: stage.id, name: stageName(stage.name) }),
          )
        }
      >
        <h2 className="wrap grow">
          {at + 1}. {stageName(stage.name)}
        </h2>
        {move === undefined ? null : <StageMenu {...props} />}
      </div>
      {stage.services.length === 0 ? <p className="dim small">No services.</p> : null}
      {stage.services.map((service) => (
        <Item
          key={service.service_id}
          stages={props.stages}
          names={names}
          move={move}
          stage={stage}
          at={at}
          service={service}
        />
      ))}
    </section>
  )
}

type Opened = 'new' | { rename: Stage } | { remove: Stage } | null

const Dialogs = ({ environmentId, opened, onClose }: { environmentId: string; opened: Opened; onClose(): void }) => {
  const changed = ['stages', 'live']
  const nameField = { at: '/name', label: 'Name', isRequired: true }
  if (opened === null) return null
  if (opened !== 'new' && 'remove' in opened)
    return (
      <FormDialog
        title={`Delete ${stageName(opened.remove.name)}`}
        button="Delete"
        isReady
        isLoss
        changed={changed}
        onClose={onClose}
        act={async () => {
          const path = { deploymentStageId: opened.remove.id }
          await answerOf(client.DELETE('/deploymentStage/{deploymentStageId}', inPath(path)))
          onClose()
        }}
      >
        <p>It has no services.</p>
      </FormDialog>
    )
  const stage = opened === 'new' ? undefined : opened.rename
  return (
    <RecordForm
      title={stage === undefined ? 'New stage' : `Rename ${stageName(stage.name)}`}
      button="Save"
      fields={[nameField]}
      record={stage}
      changed={changed}
      onClose={onClose}
      save={(body) =>
        stage === undefined
          ? answerOf(
              client.POST('/environment/{environmentId}/deploymentStage', {
                params: { path: { environmentId } },
                body: body as { name: string },
              }),
            )
          : answerOf(
              client.PUT('/deploymentStage/{deploymentStageId}', {
                params: { path: { deploymentStageId: stage.id } },
                body,
              }),
            )
      }
    />
  )
}

export const Stages = ({ environmentId }: { environmentId: string }) => {
  const may = useMay()
  const queries = useQueryClient()
  const stages = useStages(environmentId)
  const { data: services = [] } = useQuery(read.services(environmentId))
  const [opened, open] = useState<Opened>(null)
  const [said, say] = useState('')
  const moved = useRef<string | null>(null)
  // The moved item keeps the focus, in its new place.
  useEffect(() => {
    if (moved.current === null || stages.data === undefined) return
    document.querySelector<HTMLElement>(`[data-service="${moved.current}"]`)?.focus()
    moved.current = null
  }, [stages.data])
  const moving = useMutation({
    mutationFn: send,
    async onSuccess({ results }, { said: words, id }) {
      void read.refresh(['live', environmentId])
      say(words)
      moved.current = id
      queries.setQueryData(['stages', environmentId], results)
    },
    onError: tellProblem,
  })
  const names = new Map(services.map(({ id, name }) => [id, name]))
  const move = may('write') ? (each: Move) => moving.mutate(each) : undefined
  return (
    <div className="stack">
      <p className="dim">
        Stages are deployed one after another, the services of a stage at the same time.
        {move === undefined ? null : ' Drag a service to another stage, or focus it and press ←\u00a0or\u00a0→.'}
      </p>
      <span className="hidden-text" role="status">
        {said}
      </span>
      {move === undefined ? null : <NewButton onClick={() => open('new')}>New stage</NewButton>}
      <Answer of={stages}>
        {(all) => (
          // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling element must be reachable by keyboard
          <section className="stages" tabIndex={0} aria-label="Stages">
            {all.map((stage, at) => (
              <Column
                key={stage.id}
                stages={all}
                names={names}
                move={move}
                stage={stage}
                at={at}
                onRename={() => open({ rename: stage })}
                onRemove={() => open({ remove: stage })}
              />
            ))}
          </section>
        )}
      </Answer>
      <Dialogs environmentId={environmentId} opened={opened} onClose={() => open(null)} />
    </div>
  )
}
