/**
 * The requests to each kind of git host: statuses of commits, webhooks, pull requests and their comments. Pure;
 * `git-host.ts` sends them. Public shapes of docs.github.com, docs.gitlab.com, developer.atlassian.com,
 * docs.gitea.com.
 */
import { at, isObject, type Json, listOf, textAt } from '../../lib/foreign-text/fields.ts'
import { idAt } from './answers.ts'
import type { HostRequest } from './request.ts'

export type HostKind = 'GITHUB' | 'GITLAB' | 'BITBUCKET' | 'GITEA'

export type CommitState = 'PENDING' | 'SUCCESS' | 'FAILURE' | 'CANCELED'

export interface CommitStatus {
  commitId: string
  state: CommitState
  /** At most 40 characters: the same for all statuses of a service. */
  key: string
  /** The text for people. */
  name: string
  description: string
  /** The public address of the deployed service; null if it has none. */
  url: string | null
}

export interface Hook {
  id: string
  url: string
}

export interface PullRequest {
  number: number
  title: string
  url: string
  /** Its branch, and its target branch. */
  branch: string
  base: string
  /** Its branch is in another repository. */
  isFork: boolean
}

export interface Comment {
  id: string
  text: string
}

export interface HostForm {
  status(repository: string, status: CommitStatus): HostRequest
  /** Statuses with which a host answers that it has the status already. */
  hasStatus: readonly number[]
  hooks: {
    list(repository: string): string
    read(value: unknown): Hook[]
    make(repository: string, url: string, secret: string): HostRequest
    change(repository: string, id: string, url: string, secret: string): HostRequest
    remove(repository: string, id: string): HostRequest
  }
  requests: {
    perPage: number
    list(repository: string, page: number): string
    read(value: unknown): PullRequest[]
  }
  comments: {
    perPage: number
    list(repository: string, number: number, page: number): string
    read(value: unknown): Comment[]
    make(repository: string, number: number, text: string): HostRequest
    change(repository: string, number: number, id: string, text: string): HostRequest
  }
}

const send = (method: HostRequest['method'], path: string, body?: Json): HostRequest => ({
  ...{ method, path },
  ...(body && { body }),
})

const encodeAll = (repository: string): string => repository.split('/').map(encodeURIComponent).join('/')
const repos = (repository: string): string => `/repos/${encodeAll(repository)}`
const projects = (repository: string): string => `/projects/${encodeURIComponent(repository)}`
const repositories = (repository: string): string => `/repositories/${encodeAll(repository)}`

/** Both contain untrusted texts: a page of the longest ones has two megabytes. */
const textsPerPage = 30

/** The largest in the database. */
const maxNumber = 2 ** 31 - 1

const numbered = (value: unknown, name: string): number => {
  const found = at(value, name)
  return typeof found === 'number' && Number.isInteger(found) && found > 0 && found <= maxNumber ? found : 0
}

const isWhole = ({ number, branch, base }: PullRequest): boolean => number > 0 && branch !== '' && base !== ''

const pulls = (value: unknown): PullRequest[] =>
  listOf(value)
    .map((each) => ({
      number: numbered(each, 'number'),
      title: textAt(each, 'title'),
      url: textAt(each, 'html_url'),
      branch: textAt(each, 'head', 'ref'),
      base: textAt(each, 'base', 'ref'),
      // A deleted fork has no repository any more.
      isFork:
        textAt(each, 'head', 'repo', 'full_name').toLowerCase() !==
        (textAt(each, 'base', 'repo', 'full_name').toLowerCase() || '?'),
    }))
    .filter(isWhole)

const statesLikeGithub = { PENDING: 'pending', SUCCESS: 'success', FAILURE: 'failure', CANCELED: 'error' }

const hookLikeGithub = (url: string, secret: string): Json => ({
  active: true,
  events: ['push', 'pull_request'],
  config: { url, secret, content_type: 'json' },
})

/** GitHub's API, which Gitea and Forgejo implement in most places. */
const likeGithub = (
  more: Json,
  count: 'per_page' | 'limit',
  hooksPerPage: number,
  commentsPerPage: number,
): HostForm => ({
  hasStatus: [],
  status: (repository, { commitId, state, name, description, url }) =>
    send('POST', `${repos(repository)}/statuses/${commitId}`, {
      ...{ state: statesLikeGithub[state], context: name, description },
      ...(url === null ? {} : { target_url: url }),
    }),
  hooks: {
    list: (repository) => `${repos(repository)}/hooks?${count}=${hooksPerPage}`,
    read: (value) => listOf(value).map((each) => ({ id: idAt(each, 'id'), url: textAt(each, 'config', 'url') })),
    make: (repository, url, secret) =>
      send('POST', `${repos(repository)}/hooks`, { ...more, ...hookLikeGithub(url, secret) }),
    change: (repository, id, url, secret) =>
      send('PATCH', `${repos(repository)}/hooks/${id}`, hookLikeGithub(url, secret)),
    remove: (repository, id) => send('DELETE', `${repos(repository)}/hooks/${id}`),
  },
  requests: {
    perPage: textsPerPage,
    list: (repository, page) => `${repos(repository)}/pulls?state=open&${count}=${textsPerPage}&page=${page}`,
    read: pulls,
  },
  comments: {
    perPage: commentsPerPage,
    list: (repository, number, page) =>
      `${repos(repository)}/issues/${number}/comments?${count}=${textsPerPage}&page=${page}`,
    read: (value) => listOf(value).map((each) => ({ id: idAt(each, 'id'), text: textAt(each, 'body') })),
    make: (repository, number, body) => send('POST', `${repos(repository)}/issues/${number}/comments`, { body }),
    change: (repository, _number, id, body) => send('PATCH', `${repos(repository)}/issues/comments/${id}`, { body }),
  },
})

const gitlabHook = (url: string, token: string): Json => ({
  ...{ url, token, push_events: true, tag_push_events: true, merge_requests_events: true },
  enable_ssl_verification: true,
})

const gitlab: HostForm = {
  // It refuses a change from a state to the same one.
  hasStatus: [400],
  status: (repository, { commitId, state, name, description, url }) =>
    send('POST', `${projects(repository)}/statuses/${commitId}`, {
      state: { PENDING: 'pending', SUCCESS: 'success', FAILURE: 'failed', CANCELED: 'canceled' }[state],
      ...{ name, description },
      ...(url === null ? {} : { target_url: url }),
    }),
  hooks: {
    list: (repository) => `${projects(repository)}/hooks?per_page=100`,
    read: (value) => listOf(value).map((each) => ({ id: idAt(each, 'id'), url: textAt(each, 'url') })),
    make: (repository, url, secret) => send('POST', `${projects(repository)}/hooks`, gitlabHook(url, secret)),
    change: (repository, id, url, secret) =>
      send('PUT', `${projects(repository)}/hooks/${id}`, gitlabHook(url, secret)),
    remove: (repository, id) => send('DELETE', `${projects(repository)}/hooks/${id}`),
  },
  requests: {
    perPage: textsPerPage,
    list: (repository, page) =>
      `${projects(repository)}/merge_requests?state=opened&per_page=${textsPerPage}&page=${page}`,
    read: (value) =>
      listOf(value)
        .map((each) => ({
          number: numbered(each, 'iid'),
          title: textAt(each, 'title'),
          url: textAt(each, 'web_url'),
          branch: textAt(each, 'source_branch'),
          base: textAt(each, 'target_branch'),
          isFork: numbered(each, 'source_project_id') !== (numbered(each, 'target_project_id') || -1),
        }))
        .filter(isWhole),
  },
  comments: {
    perPage: textsPerPage,
    list: (repository, number, page) =>
      `${projects(repository)}/merge_requests/${number}/notes?sort=asc&per_page=${textsPerPage}&page=${page}`,
    read: (value) => listOf(value).map((each) => ({ id: idAt(each, 'id'), text: textAt(each, 'body') })),
    make: (repository, number, body) =>
      send('POST', `${projects(repository)}/merge_requests/${number}/notes`, { body }),
    change: (repository, number, id, body) =>
      send('PUT', `${projects(repository)}/merge_requests/${number}/notes/${id}`, { body }),
  },
}

const bitbucketHook = (url: string, secret: string): Json => ({
  ...{ description: 'Slipway', url, secret, active: true },
  events: ['repo:push', ...['created', 'updated', 'fulfilled', 'rejected'].map((each) => `pullrequest:${each}`)],
})

const bitbucket: HostForm = {
  hasStatus: [],
  status: (repository, { commitId, state, key, name, description, url }) =>
    send('POST', `${repositories(repository)}/commit/${commitId}/statuses/build`, {
      state: { PENDING: 'INPROGRESS', SUCCESS: 'SUCCESSFUL', FAILURE: 'FAILED', CANCELED: 'STOPPED' }[state],
      // It always requires an address.
      ...{ key, name, description, url: url ?? `https://bitbucket.org/${repository}` },
    }),
  hooks: {
    list: (repository) => `${repositories(repository)}/hooks?pagelen=100`,
    read: (value) => listOf(at(value, 'values')).map((each) => ({ id: idAt(each, 'uuid'), url: textAt(each, 'url') })),
    make: (repository, url, secret) => send('POST', `${repositories(repository)}/hooks`, bitbucketHook(url, secret)),
    change: (repository, id, url, secret) =>
      send('PUT', `${repositories(repository)}/hooks/${encodeURIComponent(id)}`, bitbucketHook(url, secret)),
    remove: (repository, id) => send('DELETE', `${repositories(repository)}/hooks/${encodeURIComponent(id)}`),
  },
  requests: {
    perPage: textsPerPage,
    list: (repository, page) =>
      `${repositories(repository)}/pullrequests?state=OPEN&pagelen=${textsPerPage}&page=${page}`,
    read: (value) =>
      listOf(at(value, 'values'))
        .map((each) => ({
          number: numbered(each, 'id'),
          title: textAt(each, 'title'),
          url: textAt(each, 'links', 'html', 'href'),
          branch: textAt(each, 'source', 'branch', 'name'),
          base: textAt(each, 'destination', 'branch', 'name'),
          isFork:
            textAt(each, 'source', 'repository', 'full_name') !==
            (textAt(each, 'destination', 'repository', 'full_name') || '?'),
        }))
        .filter(isWhole),
  },
  comments: {
    perPage: textsPerPage,
    list: (repository, number, page) =>
      `${repositories(repository)}/pullrequests/${number}/comments?pagelen=${textsPerPage}&page=${page}`,
    read: (value) =>
      listOf(at(value, 'values'))
        .filter((each) => at(each, 'deleted') !== true)
        .map((each) => ({ id: idAt(each, 'id'), text: textAt(each, 'content', 'raw') })),
    make: (repository, number, raw) =>
      send('POST', `${repositories(repository)}/pullrequests/${number}/comments`, { content: { raw } }),
    change: (repository, number, id, raw) =>
      send('PUT', `${repositories(repository)}/pullrequests/${number}/comments/${id}`, { content: { raw } }),
  },
}

export const forms: Readonly<Record<HostKind, HostForm>> = {
  GITHUB: likeGithub({ name: 'web' }, 'per_page', 100, textsPerPage),
  // Its comments have no pages.
  GITEA: likeGithub({ type: 'gitea' }, 'limit', 50, Number.POSITIVE_INFINITY),
  GITLAB: gitlab,
  BITBUCKET: bitbucket,
}

/** Whether an answer to a list is one: an error that looks like an empty list must remove nothing. */
export const isListAnswer = (value: unknown): boolean =>
  Array.isArray(value) || (isObject(value) && Array.isArray(value.values))

/** For such an answer. */
export const lengthOf = (value: unknown): number => {
  const list = isObject(value) ? value.values : value
  return Array.isArray(list) ? list.length : 0
}
