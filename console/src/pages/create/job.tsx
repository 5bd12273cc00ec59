/** A job: on a schedule, or with the deployment of its environment; from an image or a repository. */
import { NumberInput, SegmentedControl, TextInput } from '@mantine/core'
import { type Body, type FormProps, NameField, nameFrom } from './fields.tsx'
import { type Git, GitFields } from './git.tsx'
import { ImageFields } from './image.tsx'

interface Command {
  arguments?: string[]
  entrypoint?: string | undefined
}

interface Source {
  image?: Body
  docker?: { git_repository: Git; dockerfile_path: string }
}

type Schedule = Partial<Record<'on_start' | 'on_stop' | 'on_delete', Command>> & {
  cronjob?: Command & { scheduled_at: string; timezone?: string }
}

const moments = { on_start: 'deployed', on_stop: 'stopped', on_delete: 'deleted' } as const

const linesOf = (text: string): string[] => text.split('\n').filter((line) => line !== '')

const Arguments = ({ command, put, label }: { command: Command; put(command: Command): void; label: string }) => (
  <TextInput
    label={label}
    description="Passed to sh -c; leave it empty for the command of the image."
    value={command.arguments?.at(-1) ?? ''}
    onChange={(event) => {
      const [line] = linesOf(event.currentTarget.value)
      const { arguments: _, ...rest } = command
      put(line === undefined ? rest : { ...rest, arguments: ['sh', '-c', line] })
    }}
    styles={{ input: { fontFamily: 'var(--mono)' } }}
  />
)

const CronFields = ({ schedule, put, problem }: ScheduleProps) => {
  const cron = schedule.cronjob ?? { scheduled_at: '' }
  return (
    <>
      <div className="grid" style={{ gridTemplateColumns: 'repeat(auto-fit, minmax(180px, 1fr))' }}>
        <TextInput
          label="Schedule"
          description="Minute, hour, day, month, weekday"
          placeholder="0 3 * * *"
          required
          value={cron.scheduled_at}
          onChange={(event) => put({ cronjob: { ...cron, scheduled_at: event.currentTarget.value } })}
          error={problem('/schedule/cronjob/scheduled_at') ?? problem('/schedule')}
          styles={{ input: { fontFamily: 'var(--mono)' } }}
        />
        <TextInput
          label="Time zone"
          description="Such as Europe/Berlin"
          placeholder="Etc/UTC"
          value={cron.timezone ?? ''}
          onChange={(event) => {
            const { timezone: _, ...rest } = cron
            const timezone = event.currentTarget.value
            put({ cronjob: timezone === '' ? rest : { ...rest, timezone } })
          }}
          error={problem('/schedule/cronjob/timezone')}
        />
      </div>
      <Arguments
        label="Command"
        command={cron}
        put={(command) => put({ cronjob: { scheduled_at: cron.scheduled_at, ...command } })}
      />
    </>
  )
}

interface ScheduleProps {
  schedule: Schedule
  put(schedule: Schedule): void
  problem(field: string): string | undefined
}

const MomentFields = ({ schedule, put, problem }: ScheduleProps) => (
  <>
    {Object.entries(moments).map(([name, word]) => {
      const moment = name as keyof typeof moments
      return (
        <Arguments
          key={name}
          label={`Command when its environment is ${word}`}
          command={schedule[moment] ?? {}}
          put={(command) => {
            const { [moment]: _, ...rest } = schedule
            put(command.arguments === undefined && moment !== 'on_start' ? rest : { ...rest, [moment]: command })
          }}
        />
      )
    })}
    {problem('/schedule') === undefined ? null : <p className="state bad">{problem('/schedule')}</p>}
  </>
)

export const JobForm = ({ body, change, problem }: FormProps) => {
  const source = body.source as Source
  const schedule = body.schedule as Schedule
  const isCron = schedule.cronjob !== undefined
  const putSource = (next: Source, from: string | undefined): void => {
    const isNamed = body.name === undefined || body.name === '' || body.name === nameFrom(lastOf(source))
    change({ source: next, ...(isNamed && from !== undefined ? { name: nameFrom(from) } : {}) })
  }
  return (
    <>
      <SegmentedControl
        aria-label="When it runs"
        data={[
          { value: 'cron', label: 'On a schedule' },
          { value: 'lifecycle', label: 'With deployments' },
        ]}
        value={isCron ? 'cron' : 'lifecycle'}
        onChange={(value) =>
          change({ schedule: value === 'cron' ? { cronjob: { scheduled_at: '' } } : { on_start: {} } })
        }
      />
      <SegmentedControl
        aria-label="What it runs"
        data={[
          { value: 'image', label: 'An image' },
          { value: 'docker', label: 'A git repository' },
        ]}
        value={source.docker === undefined ? 'image' : 'docker'}
        onChange={(value) =>
          change({
            source:
              value === 'image'
                ? { image: {} }
                : { docker: { git_repository: { url: '' }, dockerfile_path: 'Dockerfile' } },
          })
        }
      />
      {source.docker === undefined ? (
        <ImageFields
          image={source.image ?? {}}
          put={(fields) =>
            putSource({ image: { ...source.image, ...fields } }, fields.image_name as string | undefined)
          }
          problem={problem}
          pointer="/source/image"
        />
      ) : (
        <>
          <GitFields
            git={source.docker.git_repository}
            put={(fields) =>
              putSource(
                { docker: { ...source.docker!, git_repository: { ...source.docker!.git_repository, ...fields } } },
                fields.url,
              )
            }
            problem={problem}
            pointer="/source/docker/git_repository"
          />
          <TextInput
            label="Dockerfile"
            value={source.docker.dockerfile_path}
            onChange={(event) =>
              putSource({ docker: { ...source.docker!, dockerfile_path: event.currentTarget.value } }, undefined)
            }
            error={problem('/source/docker/dockerfile_path')}
          />
        </>
      )}
      {isCron ? (
        <CronFields schedule={schedule} put={(next) => change({ schedule: next })} problem={problem} />
      ) : (
        <MomentFields schedule={schedule} put={(next) => change({ schedule: next })} problem={problem} />
      )}
      <NameField {...{ body, change, problem }} />
      <NumberInput
        label="Retries at most"
        min={0}
        hideControls
        value={typeof body.max_nb_restart === 'number' ? body.max_nb_restart : ''}
        onChange={(value) => change({ max_nb_restart: value === '' ? undefined : value })}
        error={problem('/max_nb_restart')}
      />
    </>
  )
}

const lastOf = ({ image, docker }: Source): string => docker?.git_repository.url ?? String(image?.image_name ?? '')
