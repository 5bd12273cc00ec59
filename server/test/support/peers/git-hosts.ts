/**
 * Deliveries as the git hosts make them: the public shapes of their push events (docs.github.com, docs.gitlab.com,
 * support.atlassian.com, docs.gitea.com), shortened, with real signatures.
 */
import { createHmac, randomUUID } from 'node:crypto'
import { signHeaders } from '../../../src/webhooks/sign.ts'

export type HostName = 'github' | 'gitlab' | 'gitlab-signed' | 'bitbucket' | 'gitea' | 'forgejo'

export const hostNames: readonly HostName[] = ['github', 'gitlab', 'gitlab-signed', 'bitbucket', 'gitea', 'forgejo']

export interface PushTold {
  /** `owner/name` */
  path: string
  branch?: string
  before?: string
  after?: string
  pusher?: string
  /** Whatever makes the body another one. */
  at?: string
}

export interface Delivery {
  headers: Record<string, string>
  body: string
}

const zero = '0'.repeat(40)
const commit = (id: string) => ({
  id,
  message: 'Whatever a payload says',
  timestamp: '2026-01-01T00:00:00+01:00',
  author: { name: 'A', email: 'a@example.com' },
  added: ['README.md'],
  removed: [],
  modified: [],
})

const repositoryLikeGithub = (origin: string, path: string, at: string) => ({
  id: 35129377,
  name: path.split('/').at(-1),
  full_name: path,
  private: false,
  owner: { login: path.split('/')[0], name: path.split('/')[0] },
  html_url: `${origin}/${path}`,
  url: `${origin}/${path}`,
  git_url: `git://${new URL(origin).host}/${path}.git`,
  ssh_url: `git@${new URL(origin).host}:${path}.git`,
  clone_url: `${origin}/${path}.git`,
  pushed_at: at,
  default_branch: 'main',
})

const bodies = {
  github: ({ path, branch, before, after, pusher, at }: Required<PushTold>) => ({
    ref: `refs/heads/${branch}`,
    before,
    after,
    created: before === zero,
    deleted: after === zero,
    forced: false,
    base_ref: null,
    compare: `https://github.com/${path}/compare/${before}...${after}`,
    commits: [commit(after)],
    head_commit: commit(after),
    repository: repositoryLikeGithub('https://github.com', path, at),
    pusher: { name: pusher, email: `${pusher}@users.noreply.github.com` },
    sender: { login: pusher, id: 1, type: 'User' },
  }),
  gitlab: ({ path, branch, before, after, pusher, at }: Required<PushTold>) => ({
    object_kind: 'push',
    event_name: 'push',
    before,
    after,
    ref: `refs/heads/${branch}`,
    ref_protected: true,
    checkout_sha: after === zero ? null : after,
    user_id: 4,
    user_name: `Mx ${pusher}`,
    user_username: pusher,
    project_id: 15,
    project: {
      id: 15,
      name: path.split('/').at(-1),
      web_url: `https://gitlab.com/${path}`,
      git_ssh_url: `git@gitlab.com:${path}.git`,
      git_http_url: `https://gitlab.com/${path}.git`,
      path_with_namespace: path,
      default_branch: 'main',
    },
    commits: [{ ...commit(after), timestamp: at }],
    total_commits_count: 1,
    repository: { name: path, git_http_url: `https://gitlab.com/${path}.git`, visibility_level: 0 },
  }),
  bitbucket: ({ path, branch, before, after, pusher, at }: Required<PushTold>) => {
    const side = (hash: string) =>
      hash === zero ? null : { type: 'branch', name: branch, target: { type: 'commit', hash, date: at, message: 'm' } }
    return {
      push: {
        changes: [
          { forced: false, created: before === zero, closed: after === zero, old: side(before), new: side(after) },
        ],
      },
      repository: {
        type: 'repository',
        full_name: path,
        name: path.split('/').at(-1),
        links: { html: { href: `https://bitbucket.org/${path}` } },
        scm: 'git',
      },
      actor: { type: 'user', display_name: `Mx ${pusher}`, nickname: pusher, uuid: '{d301aafa}' },
    }
  },
  gitea: ({ path, branch, before, after, pusher, at }: Required<PushTold>) => ({
    ref: `refs/heads/${branch}`,
    before,
    after,
    compare_url: `https://gitea.example/${path}/compare/${before}...${after}`,
    commits: [commit(after)],
    total_commits: 1,
    repository: { ...repositoryLikeGithub('https://gitea.example', path, at), updated_at: at },
    pusher: { id: 1, login: pusher, full_name: '', username: pusher },
    sender: { id: 1, login: pusher, username: pusher },
  }),
}

const hex = (secret: string, body: string): string => createHmac('sha256', secret).update(body).digest('hex')

type Sign = (secret: string, body: string, id: string, nowSeconds: number) => Record<string, string>

const giteaHeaders: Sign = (secret, body, id) => ({
  'x-gitea-event': 'push',
  'x-gitea-delivery': id,
  'x-gitea-signature': hex(secret, body),
  'x-gogs-event': 'push',
  'x-gogs-signature': hex(secret, body),
  'x-github-event': 'push',
  'x-github-delivery': id,
  'x-hub-signature-256': `sha256=${hex(secret, body)}`,
})

const signs: Record<HostName, Sign> = {
  github: (secret, body, id) => ({
    'user-agent': 'GitHub-Hookshot/044aadd',
    'x-github-event': 'push',
    'x-github-delivery': id,
    'x-github-hook-id': '292430182',
    'x-hub-signature-256': `sha256=${hex(secret, body)}`,
  }),
  gitlab: (secret, _body, id) => ({
    'user-agent': 'GitLab/17.4.0',
    'x-gitlab-event': 'Push Hook',
    'x-gitlab-event-uuid': id,
    'idempotency-key': id,
    'x-gitlab-token': secret,
  }),
  'gitlab-signed': (secret, body, id, nowSeconds) => ({
    'x-gitlab-event': 'Push Hook',
    'x-gitlab-event-uuid': id,
    ...signHeaders([secret], id, body, nowSeconds),
  }),
  bitbucket: (secret, body, id) => ({
    'user-agent': 'Bitbucket-Webhooks/2.0',
    'x-event-key': 'repo:push',
    'x-request-uuid': id,
    'x-hub-signature': `sha256=${hex(secret, body)}`,
  }),
  gitea: giteaHeaders,
  forgejo: (secret, body, id, nowSeconds) => ({
    ...giteaHeaders(secret, body, id, nowSeconds),
    'x-forgejo-event': 'push',
    'x-forgejo-delivery': id,
    'x-forgejo-signature': hex(secret, body),
  }),
}

/** A body and its headers, signed with the secret. */
export const sign = (host: HostName, body: string, secret: string, id: string = randomUUID()): Delivery => ({
  headers: { 'content-type': 'application/json', ...signs[host](secret, body, id, Math.floor(Date.now() / 1000)) },
  body,
})

let told = 0

export const pushBody = (host: HostName, push: PushTold): string => {
  told += 1
  const whole = { branch: 'main', before: '1'.repeat(40), after: '2'.repeat(40), pusher: 'octocat', at: String(told) }
  const shape = host === 'forgejo' ? 'gitea' : host === 'gitlab-signed' ? 'gitlab' : host
  return JSON.stringify(bodies[shape]({ ...whole, ...push }))
}

const requestEvents: Record<HostName, Record<string, string>> = {
  github: { 'x-github-event': 'pull_request' },
  gitlab: { 'x-gitlab-event': 'Merge Request Hook' },
  'gitlab-signed': { 'x-gitlab-event': 'Merge Request Hook' },
  bitbucket: { 'x-event-key': 'pullrequest:updated' },
  gitea: { 'x-gitea-event': 'pull_request', 'x-github-event': 'pull_request' },
  forgejo: { 'x-forgejo-event': 'pull_request', 'x-gitea-event': 'pull_request' },
}

/** The payload in which a host reports that a pull request was opened, pushed to or closed. */
export const requestDelivery = (host: HostName, path: string, secret: string): Delivery => {
  const body: Record<string, unknown> = JSON.parse(pushBody(host, { path }))
  const { ref: _, after: __, push: ___, ...rest } = body
  const { headers, body: text } = sign(host, JSON.stringify({ ...rest, action: 'opened', number: told }), secret)
  return { headers: { ...headers, ...requestEvents[host] }, body: text }
}

/** The payload in which a host reports a push. */
export const pushDelivery = (host: HostName, push: PushTold, secret: string): Delivery =>
  sign(host, pushBody(host, push), secret)
