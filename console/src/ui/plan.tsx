/** The effects of an action before it is done; an action that loses data asks for the name. */
import { Button, TextInput } from '@mantine/core'
import { type QueryClient, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { type Action, type Plan, planOf, run } from '../api/actions.ts'
import * as read from '../api/queries.ts'
import { DialogButtons, DialogFrame, ProblemNote } from './dialog.tsx'
import { Answer } from './notices.tsx'
import { stageName } from './stage-name.ts'
import { submitting } from './submitting.ts'
import { durationOf } from './time.tsx'
import { tell, tellProblem, type Undo } from './toasts.tsx'

/** Its objects on the cluster are removed; for a terraform service these are the resources of its module. */
const wordOf = ({ verb, target }: Action): Action['verb'] | 'destroy' =>
  verb === 'uninstall' && target.kind === 'terraform' ? 'destroy' : verb

export const wordsOf: Record<Action['verb'] | 'destroy', { title: string; button: string; done: string }> = {
  deploy: { title: 'Deploy', button: 'Deploy', done: 'The deployment of {} was requested.' },
  redeploy: { title: 'Deploy again', button: 'Deploy again', done: 'The deployment of {} was requested.' },
  'restart-service': { title: 'Restart', button: 'Restart', done: 'The restart of {} was requested.' },
  stop: { title: 'Stop', button: 'Stop', done: '{} is being stopped.' },
  rollback: { title: 'Roll back', button: 'Roll back', done: '{} goes back to the earlier version.' },
  uninstall: { title: 'Uninstall', button: 'Uninstall', done: '{} is being uninstalled.' },
  destroy: { title: 'Destroy', button: 'Destroy', done: 'The resources of {} are being destroyed.' },
  delete: { title: 'Delete', button: 'Delete', done: '{} is being deleted.' },
}

const effects: Record<string, [string, string]> = {
  BUILD: ['Builds and rolls out', 'busy'],
  ROLL_OUT: ['Rolls out', 'busy'],
  RESTART: ['Restarts', 'busy'],
  RUN: ['Runs', 'busy'],
  STOP: ['Stops', 'warn'],
  DELETE: ['Is deleted', 'bad'],
  UNTOUCHED: ['Untouched', ''],
  SKIPPED: ['Unchanged: skipped', ''],
  REFUSED: ['Refused', 'bad'],
}

type Planned = Plan['stages'][number]['services'][number]

const shown = (value: unknown): string =>
  value === null || value === undefined ? '–' : typeof value === 'string' ? value : JSON.stringify(value)

/** A JSON pointer to a field, in readable form. */
export const fieldWords = (pointer: string): string => pointer.slice(1).replaceAll('/', ' › ').replaceAll('_', ' ')

export const Line = ({ name, from, to }: { name: string; from: unknown; to: unknown }) => (
  <>
    <span className="dim">{name}</span>
    <span className="wrap mono">
      {from === null || from === undefined ? null : (
        <>
          <del className="from">{shown(from)}</del> <span aria-hidden="true">→</span>
          <span className="hidden-text">becomes</span>{' '}
        </>
      )}
      <ins className="to" style={{ textDecoration: 'none' }}>
        {shown(to)}
      </ins>
    </span>
  </>
)

/** Fields that the platform sets: many, and rarely interesting. */
const isBuiltIn = (key: string): boolean => /^(QOVERY|SLIPWAY)_/.test(key)

const Keys = ({ what, keys }: { what: string; keys: readonly string[] }) => {
  const own = keys.filter((key) => !isBuiltIn(key))
  const others = keys.length - own.length
  if (keys.length === 0) return null
  return (
    <>
      <span className="dim">variables {what}</span>
      <span className="wrap mono">
        {own.join(', ')}
        {others === 0 ? null : <span className="dim">{`${own.length === 0 ? '' : ' and '}${others} built in`}</span>}
      </span>
    </>
  )
}

const Changes = ({ changes, not_applied, effect }: Planned) => {
  const { image, commit, configuration, variables } = changes
  return (
    <div className="diff">
      {commit === null ? null : <Line name="commit" from={commit.from?.slice(0, 10)} to={commit.to?.slice(0, 10)} />}
      {image === null ? null : <Line name="image" from={image.from} to={image.to} />}
      {configuration.map(({ field, from, to }) => (
        <Line key={field} name={fieldWords(field)} from={from} to={to} />
      ))}
      <Keys what="added" keys={variables.added} />
      <Keys what="changed" keys={variables.changed} />
      <Keys what="removed" keys={variables.removed} />
      {not_applied.length === 0 || effect === 'DELETE' || effect === 'STOP' ? null : (
        <>
          <span className="dim">without effect here</span>
          <span className="wrap dim">{not_applied.map(fieldWords).join(', ')}</span>
        </>
      )}
    </div>
  )
}

const PlannedService = ({ service }: { service: Planned }) => {
  const [word, tone] = effects[service.effect] ?? [service.effect, '']
  return (
    <div className="stack tight" style={{ padding: '10px 0', borderTop: '1px solid var(--line)' }}>
      <div className="row">
        <span className="strong clip">{service.name}</span>
        <span className={`chip ${tone}`}>{word}</span>
        {service.downtime ? <span className="chip warn">Is interrupted</span> : null}
        <span className="push dim small nowrap">
          {(service.expected_duration_sec ?? 0) < 1 ? null : `about ${durationOf(service.expected_duration_sec)}`}
        </span>
      </div>
      <p className="dim small wrap">{service.reason}</p>
      <Changes {...service} />
    </div>
  )
}

const PlanView = ({ plan }: { plan: Plan }) => (
  // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling element must be reachable by keyboard
  <section className="stack tight plan" tabIndex={0} aria-label="Plan">
    <p className="dim">
      {plan.downtime ? 'This interrupts services. ' : 'No service is interrupted. '}
      {(plan.expected_duration_sec ?? 0) < 1 ? '' : `It takes about ${durationOf(plan.expected_duration_sec)}.`}
    </p>
    {plan.stages
      .filter(({ services }) => services.length > 0)
      .map(({ name, services }) => (
        <section key={name}>
          {plan.stages.length < 2 ? null : <h3 className="dim plan-stage">{stageName(name)}</h3>}
          {services.map((service) => (
            <PlannedService key={service.id} service={service} />
          ))}
        </section>
      ))}
  </section>
)

const losing = ({ verb }: Action): boolean => verb === 'delete' || verb === 'uninstall'

const lossOf = ({ verb, target: { kind, several } }: Action): string => {
  if (several !== undefined) return 'Their containers and volumes with their data, variables and history are deleted.'
  if (kind === undefined) return 'All its services, their data and their history are deleted.'
  const resources = kind === 'terraform' ? 'The resources that it manages are destroyed.' : null
  if (verb === 'uninstall')
    return `${resources ?? 'What it has on its cluster is removed, volumes with their data too.'} Its configuration, variables and history are kept.`
  return `${resources ?? 'Its containers and volumes with their data are deleted.'} Its variables and history are deleted.`
}

const Loss = ({ action, typed, onType }: { action: Action; typed: string; onType(text: string): void }) => (
  <div className="stack">
    <div className="note bad">
      <strong>This cannot be undone.</strong> {lossOf(action)}
    </div>
    <TextInput
      data-autofocus
      label={
        <span className="wrap">{`Type ${action.target.name} to ${wordOf(action)} ${action.target.several === undefined ? 'it' : 'them'}`}</span>
      }
      value={typed}
      onChange={(event) => onType(event.currentTarget.value)}
      autoComplete="off"
    />
  </div>
)

/** Starts the stopped version, not the current configuration; a kind without releases starts its deployed version. */
const startAgain = async ({ target }: Action, queries: QueryClient): Promise<void> => {
  const { id, kind, name, environmentId } = target
  const releases =
    kind !== undefined && read.hasReleases(kind)
      ? await queries.fetchQuery({ ...read.releases(kind, id, environmentId), staleTime: 0 })
      : []
  const current = releases.find(({ is_current: is }) => is)
  await run(current === undefined ? { verb: 'redeploy', target } : { verb: 'rollback', target, to: current.id })
  tell(`${name} starts again.`, { to: `/e/${environmentId}/deployments`, text: 'See the deployment' })
}

/** Only for a stop, and only where it starts exactly the stopped services, so not for a part of an environment. */
const undoOf = (action: Action, plan: Plan | undefined, queries: QueryClient): Undo | undefined => {
  const stopped = plan?.stages.flatMap(({ services }) => services) ?? []
  const isWhole = stopped.length > 0 && stopped.every(({ effect }) => effect === 'STOP')
  if (action.verb !== 'stop' || action.target.several !== undefined || !isWhole) return undefined
  return { text: 'Start again', run: () => void startAgain(action, queries).catch(tellProblem) }
}

export const PlanDialog = ({ action, onClose, onDone }: { action: Action; onClose(): void; onDone?(): void }) => {
  const queries = useQueryClient()
  const [typed, setTyped] = useState('')
  const { title, button, done } = wordsOf[wordOf(action)]
  const { target } = action
  const plan = useQuery({
    queryKey: ['plan', action],
    queryFn: () => planOf(action),
    gcTime: 0,
    staleTime: 0,
    retry: false,
  })
  const doing = useMutation({
    mutationFn: () => run(action),
    onSuccess() {
      const link = { to: `/e/${target.environmentId}/deployments`, text: 'See the deployment' }
      tell(
        done.replace('{}', target.name),
        action.verb === 'delete' ? undefined : link,
        undoOf(action, plan.data, queries),
      )
      void read.refresh(read.live(target.environmentId).queryKey)
      onClose()
      onDone?.()
    },
    onError() {
      void plan.refetch()
    },
  })
  const isLocked = losing(action) && typed !== target.name
  return (
    <DialogFrame title={`${title} ${target.name}`} size="lg" onClose={onClose}>
      <form
        className="stack"
        onSubmit={submitting(() => {
          if (!isLocked) doing.mutate()
        })}
      >
        <Answer of={plan}>{(found) => <PlanView plan={found} />}</Answer>
        {losing(action) ? <Loss action={action} typed={typed} onType={setTyped} /> : null}
        <ProblemNote error={doing.error} />
        <DialogButtons onClose={onClose}>
          <Button
            type="submit"
            color={losing(action) ? 'red' : 'blue'}
            disabled={isLocked || plan.data === undefined}
            loading={doing.isPending}
            data-autofocus={losing(action) ? undefined : true}
          >
            {button}
          </Button>
        </DialogButtons>
      </form>
    </DialogFrame>
  )
}
