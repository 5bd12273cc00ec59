/**
 * The APIs of git hosts on a free port of loopback, as far as Slipway asks them: statuses of commits, webhooks, pull
 * requests and comments, in the public shapes of GitHub, GitLab, Bitbucket and Gitea.
 */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Json } from '../api.ts'

export type ApiName = 'github' | 'gitlab' | 'bitbucket' | 'gitea'

export const apiNames: readonly ApiName[] = ['github', 'gitlab', 'bitbucket', 'gitea']

const prefixes: Record<ApiName, string> = { github: '/api/v3', gitlab: '/api/v4', bitbucket: '/2.0', gitea: '/api/v1' }

/** A pull request of the repository. */
export interface OpenRequest {
  number: number
  branch: string
  base?: string
  /** Its branch is in another repository. */
  fork?: boolean
}

export interface GitHostApi {
  origin: string
  /** What a git token of this host needs. */
  token(name: ApiName): { type: string; token: string; git_api_url: string; workspace?: string }
  /** Received statuses of commits, in order, in one form for all hosts. */
  statuses: { repository: string; commit: string; state: string; name: string; description: string; url?: string }[]
  hooks: { id: number; url: string; secret: string; events: unknown }[]
  comments: { id: number; request: number; text: string }[]
  /** Open pull requests, by `owner/name`. */
  requests: Map<string, OpenRequest[]>
  /** Requests so far: `POST /api/v3/…`. */
  asked: string[]
  /** The status of all answers from now on; null ends it. */
  setFault(status: number | null): void
  close(): Promise<void>
}

const tokenText = 'the token'

const readBody = async (request: IncomingMessage): Promise<Json> => {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  const text = Buffer.concat(chunks).toString()
  return text === '' ? {} : JSON.parse(text)
}

/** One page of a list, as it was asked for. Gitea knows none for comments. */
const pageOf = (said: object, { searchParams: query, pathname }: URL, name: ApiName): object => {
  if (name === 'gitea' && pathname.endsWith('/comments')) return said
  const size = Number(query.get('per_page') ?? query.get('limit') ?? query.get('pagelen') ?? 20)
  const from = (Number(query.get('page') ?? 1) - 1) * size
  const cut = (list: object[]): object[] => list.slice(from, from + size)
  if (Array.isArray(said)) return cut(said)
  return 'values' in said ? { values: cut(said.values as object[]) } : said
}

const page = (name: ApiName, list: object[]): object => (name === 'bitbucket' ? { values: list } : list)

const shownRequest = (name: ApiName, repository: string, each: OpenRequest): object => {
  const { number, branch, base = 'main', fork = false } = each
  const title = `Change ${branch}`
  const theirs = fork ? 'somebody/else' : repository
  if (name === 'gitlab')
    return {
      ...{ iid: number, title, web_url: `https://gitlab.example/${repository}/-/merge_requests/${number}` },
      ...{ source_branch: branch, target_branch: base, source_project_id: fork ? 7 : 15, target_project_id: 15 },
    }
  if (name === 'bitbucket')
    return {
      ...{
        id: number,
        title,
        links: { html: { href: `https://bitbucket.org/${repository}/pull-requests/${number}` } },
      },
      source: { branch: { name: branch }, repository: { full_name: theirs } },
      destination: { branch: { name: base }, repository: { full_name: repository } },
    }
  return {
    ...{ number, title, html_url: `https://github.example/${repository}/pull/${number}` },
    head: { ref: branch, sha: 'f'.repeat(40), repo: { full_name: theirs } },
    base: { ref: base, repo: { full_name: repository } },
  }
}

const shownHook = (name: ApiName, { id, url }: { id: number; url: string }): object => {
  if (name === 'bitbucket') return { uuid: `{${id}}`, url }
  return name === 'gitlab' ? { id, url } : { id, config: { url } }
}

const shownComment = (name: ApiName, { id, text }: { id: number; text: string }): object =>
  name === 'bitbucket' ? { id, content: { raw: text } } : { id, body: text }

type Route = [method: RegExp, path: RegExp, run: (found: string[], body: Json, name: ApiName) => object | number]

const routesOf = (host: GitHostApi): Route[] => {
  let made = 0
  const decode = (repository: string): string => decodeURIComponent(repository)
  const changeHook = (id: number, body: Json): void => {
    const config = body.config ?? body
    const hook = host.hooks.find((each) => each.id === id)!
    Object.assign(hook, { url: config.url, secret: config.secret ?? config.token, events: body.events ?? 'flags' })
  }
  return [
    [
      /POST/,
      /^\/(?:repos|projects|repositories)\/(.+?)\/(?:statuses|commit)\/([0-9a-f]+)(?:\/statuses\/build)?$/,
      ([repository, commit], { state, context, name, description, target_url, url }) => {
        const told = { state, name: context ?? name, description, url: target_url ?? url }
        host.statuses.push({ repository: decode(repository!), commit: commit!, ...told })
        return {}
      },
    ],
    [
      /GET/,
      /\/hooks$/,
      (_, __, name) =>
        page(
          name,
          host.hooks.map((hook) => shownHook(name, hook)),
        ),
    ],
    [
      /POST/,
      /\/hooks$/,
      (_, body) => {
        made += 1
        host.hooks.push({ id: made, url: '', secret: '', events: null })
        changeHook(made, body)
        return { id: made }
      },
    ],
    [
      /PATCH|PUT/,
      /\/hooks\/(?:%7B)?(\d+)(?:%7D)?$/i,
      ([id], body) => {
        changeHook(Number(id), body)
        return {}
      },
    ],
    [
      /DELETE/,
      /\/hooks\/(?:%7B)?(\d+)(?:%7D)?$/i,
      ([id]) => {
        host.hooks = host.hooks.filter((hook) => hook.id !== Number(id))
        return 204
      },
    ],
    [
      /GET/,
      /^\/(?:repos|projects|repositories)\/(.+?)\/(?:pulls|merge_requests|pullrequests)$/,
      ([repository], _, name) => {
        const path = decode(repository!)
        return page(
          name,
          (host.requests.get(path) ?? []).map((each) => shownRequest(name, path, each)),
        )
      },
    ],
    [
      /GET/,
      /\/(?:issues|merge_requests|pullrequests)\/(\d+)\/(?:comments|notes)$/,
      ([number], _, name) => {
        const own = host.comments.filter(({ request }) => request === Number(number))
        return page(
          name,
          own.map((each) => shownComment(name, each)),
        )
      },
    ],
    [
      /POST/,
      /\/(?:issues|merge_requests|pullrequests)\/(\d+)\/(?:comments|notes)$/,
      ([number], body) => {
        made += 1
        host.comments.push({ id: made, request: Number(number), text: body.body ?? body.content.raw })
        return { id: made }
      },
    ],
    [
      /PATCH|PUT/,
      /\/(?:comments|notes)\/(\d+)$/,
      ([id], body) => {
        host.comments.find((each) => each.id === Number(id))!.text = body.body ?? body.content.raw
        return {}
      },
    ],
  ]
}

export const startGitHostApi = async (): Promise<GitHostApi> => {
  let fault: number | null = null
  const host: GitHostApi = {
    ...{ origin: '', statuses: [], hooks: [], comments: [], requests: new Map(), asked: [] },
    token: (name) => ({
      type: name === 'gitea' ? 'GITHUB' : name.toUpperCase(),
      token: tokenText,
      git_api_url: `${host.origin}${prefixes[name]}`,
      ...(name === 'bitbucket' ? { workspace: 'acme' } : {}),
    }),
    setFault(status) {
      fault = status
    },
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  const routes = routesOf(host)
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await readBody(request)
    const path = request.url!.split('?')[0]!
    host.asked.push(`${request.method} ${path}`)
    const name = apiNames.find((each) => path.startsWith(prefixes[each]))!
    if (request.headers.authorization !== `Bearer ${tokenText}`) return void response.writeHead(401).end('{}')
    if (fault !== null) return void response.writeHead(fault).end('{}')
    const rest = path.slice(prefixes[name].length)
    for (const [method, pattern, run] of routes) {
      const found = pattern.exec(rest)
      if (found === null || !new RegExp(`^(?:${method.source})$`).test(request.method!)) continue
      const said = run(found.slice(1), body, name)
      if (typeof said === 'number') return void response.writeHead(said).end()
      const shown = pageOf(said, new URL(request.url!, host.origin), name)
      return void response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(shown))
    }
    response.writeHead(404).end('{}')
  }
  const server = createServer((request, response) => void answer(request, response)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  host.origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return host
}
