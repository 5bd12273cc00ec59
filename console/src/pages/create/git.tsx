/**
 * A service from a git repository: its branches, Dockerfiles and ports are looked up as soon as there is an address.
 */

import { Autocomplete, Select, TextInput } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { useRef } from 'react'
import { answerOf, client } from '../../api/client.ts'
import { namesOf } from '../../ui/record-form.tsx'
import { useGitTokens } from './choices.ts'
import { type FormProps, Look, NameField, nameFrom, PortFields } from './fields.tsx'

export interface Git {
  url: string
  branch?: string | undefined
  root_path?: string | undefined
  git_token_id?: string | null | undefined
}

const isComplete = (url: string): boolean => /^https?:\/\/[^/\s]+\/[^/\s]+/.test(url)

interface GitFieldsProps {
  git: Git
  put(fields: Partial<Git>): void
  problem(field: string): string | undefined
  /** JSON pointer to the repository in the body. */
  pointer: string
  branches?: readonly string[]
  onLeave?(): void
}

/** The fields of a repository, for every kind that has one. */
export const GitFields = ({ git, put, problem, pointer, branches = [], onLeave }: GitFieldsProps) => {
  const tokens = useGitTokens()
  return (
    <>
      <TextInput
        label="Repository"
        description="The address that git clone takes: any host."
        required
        data-autofocus
        value={git.url}
        onChange={(event) => put({ url: event.currentTarget.value.trim() })}
        onBlur={onLeave}
        error={problem(`${pointer}/url`) ?? problem(pointer)}
      />
      <div className="grid" style={{ gridTemplateColumns: 'repeat(auto-fit, minmax(180px, 1fr))' }}>
        <Autocomplete
          label="Branch"
          placeholder="main"
          data={[...branches]}
          value={git.branch ?? ''}
          onChange={(branch) => put({ branch: branch || undefined })}
          error={problem(`${pointer}/branch`)}
        />
        <TextInput
          label="Folder"
          placeholder="/"
          value={git.root_path ?? ''}
          onChange={(event) => put({ root_path: event.currentTarget.value || undefined })}
          error={problem(`${pointer}/root_path`)}
        />
        {tokens.length === 0 ? null : (
          <Select
            label="Git token"
            placeholder="None (public)"
            clearable
            data={namesOf(tokens)}
            value={git.git_token_id ?? null}
            onChange={(id) => put({ git_token_id: id ?? undefined })}
            error={problem(`${pointer}/git_token_id`)}
          />
        )}
      </div>
    </>
  )
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
  const portOf = (path: string, found: Found): object => {
    const [port] = found.dockerfiles.find((each) => each.path === path)?.exposed_ports ?? []
    const isEmpty = ((body.ports as unknown[] | undefined) ?? []).length === 0
    if (port === undefined || !isEmpty) return {}
    return { ports: [{ internal_port: port, external_port: 443, protocol: 'HTTP', publicly_accessible: true }] }
  }
  const looking = useMutation({
    mutationFn: () =>
      answerOf(
        client.POST('/environment/{environmentId}/inspectRepository', {
          params: { path: { environmentId } },
          body: { git_repository: git },
        }),
      ),
    onSuccess(found) {
      const paths = found.dockerfiles.map(({ path }) => path)
      const now = String(body.dockerfile_path)
      const path = paths.includes(now) ? now : (paths[0] ?? now)
      change({
        git_repository: { ...git, branch: git.branch ?? found.branch },
        dockerfile_path: path,
        ...portOf(path, found),
      })
    },
  })
  const looked = useRef('')
  const lookOnce = (): void => {
    const key = JSON.stringify(git)
    if (!isComplete(git.url) || looked.current === key) return
    looked.current = key
    looking.mutate()
  }
  const found = looking.data
  return (
    <>
      <GitFields
        git={git}
        put={put}
        problem={problem}
        pointer="/git_repository"
        branches={found?.branches ?? []}
        onLeave={lookOnce}
      />
      <Autocomplete
        label="Dockerfile"
        data={found?.dockerfiles.map(({ path }) => path) ?? []}
        value={String(body.dockerfile_path ?? '')}
        onChange={(path) => change({ dockerfile_path: path, ...(found === undefined ? {} : portOf(path, found)) })}
        error={problem('/dockerfile_path')}
      />
      <Look label="Look at the repository" isDisabled={git.url === ''} looking={looking}>
        <Outcome found={found} />
      </Look>
      <NameField {...{ body, change, problem }} />
      <PortFields {...{ body, change, problem }} />
    </>
  )
}

interface Found {
  branch: string
  branches: string[]
  dockerfiles: { path: string; exposed_ports: number[] }[]
}

const Outcome = ({ found }: { found: Found | undefined }) => {
  if (found === undefined) return null
  const { branch, branches, dockerfiles } = found
  if (branches.length === 0) return <span className="state warn">The repository has no branches yet.</span>
  if (!branches.includes(branch)) return <span className="state warn">There is no branch {branch}.</span>
  if (dockerfiles.length === 0)
    return <span className="state warn">There is no Dockerfile on {branch}: it is built from one.</span>
  const ports = dockerfiles.flatMap((each) => each.exposed_ports)
  return (
    <span className="state good">
      Found {branches.length === 1 ? 'one branch' : `${branches.length} branches`}, on {branch}{' '}
      {dockerfiles.length === 1 ? 'one Dockerfile' : `${dockerfiles.length} Dockerfiles`}
      {ports.length === 0 ? '' : `, port ${[...new Set(ports)].join(', ')}`}
    </span>
  )
}
