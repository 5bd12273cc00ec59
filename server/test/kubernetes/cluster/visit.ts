/**
 * In place of an ingress controller, which the cluster of the tests has not: a request to a host goes where its Ingress
 * says, by the API server's own way to services.
 */
import type { Json } from '../../support/api.ts'
import type { Visit } from '../../support/runtimes/conformance.ts'
import type { Admin } from './admin.ts'

const textOf = ({ status, body }: { status: number; body: Json }): string =>
  `${status} ${typeof body.text === 'string' ? body.text : JSON.stringify(body)}`

/** What a service answers at one of its ports. */
export const askService = async (admin: Admin, namespace: string, name: string, port: number): Promise<string> =>
  textOf(await admin.ask('GET', `/api/v1/namespaces/${namespace}/services/${name}:${port}/proxy/`))

/** Asks one pod at its port 8080. */
export const askPod = async (admin: Admin, namespace: string, name: string, path: string): Promise<string> =>
  textOf(await admin.ask('GET', `/api/v1/namespaces/${namespace}/pods/${name}:8080/proxy${path}`))

export const createVisit =
  (admin: Admin): Visit =>
  async (url) => {
    const { hostname } = new URL(url)
    if (/^[\d.]+$/.test(hostname)) {
      const answer = await fetch(url, { headers: { connection: 'close' }, signal: AbortSignal.timeout(5000) })
      return `${answer.status} ${await answer.text()}`
    }
    const { items } = await admin.get('/apis/networking.k8s.io/v1/ingresses')
    for (const { metadata, spec } of items as Json[])
      for (const { host, http } of spec.rules) {
        const { name, port } = http.paths[0].backend.service
        if (host === hostname) return askService(admin, metadata.namespace, name, port.number)
      }
    return '404 no Ingress has this host'
  }
