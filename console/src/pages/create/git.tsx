/** A service from a git repository. */
import { Button, TextInput } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { answerOf, client } from '../../api/client.ts'
import { type FormProps, NameField, nameFrom, PortFields } from './fields.tsx'

interface Git {
  url: string
  branch?: string
  root_path?: string
}

export const GitForm = ({ body, change, problem, environmentId }: FormProps) => {
  const git = (body.git_repository as Git | undefined) ?? { url: '' }
  const put = (fields: Partial<Git>): void => {
    const isNamed = body.name === undefined || body.name === '' || body.name === nameFrom(git.url)
    change({
      git_repository: { ...git, ...fields },
      ...(isNamed && fields.url !== undefined ? { name: nameFrom(fields.url) } : {}),
    })
  }
  const checking = useMutation({
    mutationFn: () =>
      answerOf(
        client.POST('/environment/{environmentId}/checkDockerfile', {
          params: { path: { environmentId } },
          body: { git_repository: git, dockerfile_path: String(body.dockerfile_path ?? 'Dockerfile') },
        }),
      ),
  })
  return (
    <>
      <TextInput
        label="Repository"
        description="The address that git clone takes: any host."
        required
        data-autofocus
        value={git.url}
        onChange={(event) => put({ url: event.currentTarget.value })}
        error={problem('/git_repository/url') ?? problem('/git_repository')}
      />
      <div className="grid" style={{ gridTemplateColumns: 'repeat(auto-fit, minmax(180px, 1fr))' }}>
        <TextInput
          label="Branch"
          placeholder="the default branch"
          value={git.branch ?? ''}
          onChange={(event) => put({ branch: event.currentTarget.value || undefined })}
          error={problem('/git_repository/branch')}
        />
        <TextInput
          label="Folder"
          placeholder="/"
          value={git.root_path ?? ''}
          onChange={(event) => put({ root_path: event.currentTarget.value || undefined })}
          error={problem('/git_repository/root_path')}
        />
        <TextInput
          label="Dockerfile"
          value={String(body.dockerfile_path ?? '')}
          onChange={(event) => change({ dockerfile_path: event.currentTarget.value })}
          error={problem('/dockerfile_path')}
        />
      </div>
      <div className="row wraps">
        <Button
          variant="default"
          size="compact-sm"
          disabled={git.url === ''}
          loading={checking.isPending}
          onClick={() => checking.mutate()}
        >
          Look at the repository
        </Button>
        <span role="status" className="small">
          {checking.data === undefined ? null : (
            <span className="state good">Found {checking.data.dockerfile_path}</span>
          )}
          {checking.error === null ? null : <span style={{ color: 'var(--bad)' }}>{checking.error.message}</span>}
        </span>
      </div>
      <NameField {...{ body, change, problem }} />
      <PortFields {...{ body, change, problem }} />
    </>
  )
}
