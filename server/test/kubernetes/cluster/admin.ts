/** What tests ask a cluster as the owner of a kubeconfig that has everything in it; not by what they test. */
import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { Agent, request } from 'node:https'
import { parseKubeconfig } from '../../../src/lib/kubernetes/kubeconfig.ts'
import type { Json } from '../../support/api.ts'

export interface Answer {
  status: number
  body: Json
}

export interface Admin {
  ask(method: string, path: string, body?: object | string, type?: string): Promise<Answer>
  /** The body of an answer that is not a failure. */
  get(path: string): Promise<Json>
  /** Creates the object or changes it. */
  apply(manifest: Json): Promise<Json>
  /** Deletes it, if it exists, with what it owns. */
  remove(manifest: Json): Promise<void>
  close(): void
}

const readText = async (answer: IncomingMessage): Promise<string> => {
  let text = ''
  for await (const chunk of answer.setEncoding('utf8')) text += chunk
  return text
}

export const openAdmin = async (kubeconfig: string): Promise<Admin> => {
  const { host, port, path: base, serverName, ca, cert, key, token } = await parseKubeconfig(kubeconfig)
  const agent = new Agent({ keepAlive: true, ca, cert, key: key?.reveal(), servername: serverName })
  const bearer = token === undefined ? {} : { authorization: `Bearer ${token.reveal()}` }

  const ask: Admin['ask'] = async (method, path, body, type = 'application/json') => {
    const sent = request({
      ...{ agent, host, port, method, path: base + path, timeout: 30_000 },
      headers: { accept: 'application/json', ...bearer, ...(body === undefined ? {} : { 'content-type': type }) },
    })
    sent.on('timeout', () => sent.destroy(new Error(`${method} ${path}: no answer within 30 s`)))
    sent.end(body === undefined || typeof body === 'string' ? body : JSON.stringify(body))
    const [answer] = (await once(sent, 'response')) as [IncomingMessage]
    const text = await readText(answer)
    const isJson = answer.headers['content-type']?.startsWith('application/json')
    return { status: answer.statusCode ?? 0, body: isJson ? JSON.parse(text) : { text } }
  }
  const expect = async (method: string, path: string, body?: object, type?: string): Promise<Json> => {
    const answer = await ask(method, path, body, type)
    if (answer.status > 299) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
    return answer.body
  }
  const pathOf = async ({ apiVersion, kind, metadata }: Json): Promise<string> => {
    const group = `/${String(apiVersion).includes('/') ? 'apis' : 'api'}/${apiVersion}`
    const { resources } = await expect('GET', group)
    const found = resources.find((each: Json) => each.kind === kind && !each.name.includes('/'))
    if (found === undefined) throw new Error(`the cluster has no ${kind} of ${apiVersion}`)
    const place = found.namespaced ? `/namespaces/${metadata.namespace ?? 'default'}` : ''
    return `${group}${place}/${found.name}/${metadata.name}`
  }
  return {
    ask,
    get: (path) => expect('GET', path),
    apply: async (manifest) =>
      expect(
        'PATCH',
        `${await pathOf(manifest)}?fieldManager=tests&force=true`,
        manifest,
        'application/apply-patch+yaml',
      ),
    async remove(manifest) {
      const { status, body } = await ask('DELETE', `${await pathOf(manifest)}?propagationPolicy=Background`)
      if (status > 299 && status !== 404) throw new Error(`${status} ${JSON.stringify(body)}`)
    },
    close: () => agent.destroy(),
  }
}
