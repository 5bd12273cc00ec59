/** The buttons of the actions on a service or an environment that the caller may use. */
import { ActionIcon, Button, Menu } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { useState } from 'react'
import { type Action, cancel, type Verb } from '../api/actions.ts'
import { Icon } from './icons.tsx'
import { useMay } from './place.ts'
import { PlanDialog, wordsOf } from './plan.tsx'
import { tell, tellProblem } from './toasts.tsx'

interface Props {
  target: Action['target']
  /** Something of it is deploying. */
  isBusy: boolean
  /** The configuration differs from the deployed one: deploying is the next step. */
  isStale: boolean
  onDeleted?(): void
}

const withInstances = ['application', 'container', 'database']

/** `of`: the targets of the action; an environment is not one of the kinds. */
const more: { verb: Verb; icon: 'back' | 'restart' | 'stop' | 'trash'; of: readonly string[] }[] = [
  { verb: 'rollback', icon: 'back', of: ['environment', ...withInstances, 'job', 'argocdApp'] },
  { verb: 'restart-service', icon: 'restart', of: withInstances },
  { verb: 'stop', icon: 'stop', of: ['environment', ...withInstances, 'job', 'helm', 'argocdApp'] },
]

const Cancel = ({ environmentId }: { environmentId: string }) => {
  const doing = useMutation({
    mutationFn: () => cancel(environmentId),
    onSuccess: () => tell('The deployment is being canceled.'),
    onError: tellProblem,
  })
  return (
    <Button variant="default" onClick={() => doing.mutate()} loading={doing.isPending}>
      Cancel the deployment
    </Button>
  )
}

export const Actions = ({ target, isBusy, isStale, onDeleted }: Props) => {
  const may = useMay()
  const [asked, ask] = useState<Verb | null>(null)
  const verbs = more.filter(({ of }) => of.includes(target.kind ?? 'environment'))
  const deploys = may('deploy')
  if (!deploys && !may('delete')) return null
  return (
    <div className="row actions">
      {isBusy && may('deploy') ? <Cancel environmentId={target.environmentId} /> : null}
      {deploys ? (
        <Button
          leftSection={<Icon name="play" size={14} />}
          onClick={() => ask('deploy')}
          variant={isStale ? 'filled' : 'default'}
        >
          Deploy
        </Button>
      ) : null}
      <Menu position="bottom-end">
        <Menu.Target>
          <ActionIcon variant="default" size={36} aria-label="More actions">
            <Icon name="dots" />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          {may('deploy')
            ? verbs.map(({ verb, icon }) => (
                <Menu.Item key={verb} leftSection={<Icon name={icon} />} onClick={() => ask(verb)}>
                  {wordsOf[verb].title}
                </Menu.Item>
              ))
            : null}
          {may('delete') ? (
            <>
              {deploys ? <Menu.Divider /> : null}
              {target.kind === undefined ? null : (
                <Menu.Item color="red" leftSection={<Icon name="down" />} onClick={() => ask('uninstall')}>
                  {target.kind === 'terraform' ? 'Destroy' : 'Uninstall'}
                </Menu.Item>
              )}
              <Menu.Item color="red" leftSection={<Icon name="trash" />} onClick={() => ask('delete')}>
                Delete
              </Menu.Item>
            </>
          ) : null}
        </Menu.Dropdown>
      </Menu>
      {asked === null ? null : (
        <PlanDialog
          action={{ verb: asked, target }}
          onClose={() => ask(null)}
          {...(asked === 'delete' && onDeleted !== undefined ? { onDone: onDeleted } : {})}
        />
      )}
    </div>
  )
}
