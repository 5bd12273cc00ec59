import { createTestCa } from '../../server/test/support/tls/test-ca.ts'
import type { Bench } from '../bench.ts'
import type { Figure, Goal, Side } from '../figure.ts'
import { freePort } from '../free-port.ts'
import { startOurs } from '../ours.ts'
import { deploy, makeApplication, untilRouted } from '../ours-deploy.ts'
import { type TlsPlace, untilServed, whileAsking } from '../tls-load.ts'

const clients = 16
const redeploysPerRound = 4
const host = 'www.bench-10.localhost'

/** A service of a whole server, with a domain and a certificate of its own. */
const openService = async (bench: Bench) => {
  const tlsPort = await freePort()
  const [{ url }, ours, ca] = await Promise.all([
    bench.sources(),
    startOurs(bench, 'ours_tls', { SLIPWAY_ROUTER_TLS_PORT: String(tlsPort) }),
    createTestCa(),
  ])
  bench.onClose(ours.stop)
  const id = await makeApplication(ours, await ours.makeEnvironment('figure-10'), 'encrypted', url)
  const domains = `/application/${id}/customDomain`
  const domain = await ours.call<{ id: string }>('POST', domains, { domain: host, generate_certificate: false })
  const { certificate, key } = await ca.issue(host)
  await ours.call('PUT', `${domains}/${domain.id}/certificate`, { certificate, private_key: key })
  await deploy(ours, id)
  await untilRouted(ours, id)
  const place: TlsPlace = { port: tlsPort, host, ca: ca.certificate }
  await untilServed(place)
  return { ours, id, place }
}

const openOurs = async (bench: Bench): Promise<Side> => {
  const { ours, id, place } = await openService(bench)
  const total = { failed: 0, requests: 0, redeploys: 0 }
  return {
    async measure(round) {
      const seen = await whileAsking(place, clients, async () => {
        for (let n = 0; n < redeploysPerRound; n++) {
          await ours.call('POST', `/application/${id}/environmentVariable`, { key: 'ROUND', value: `${round}.${n}` })
          await deploy(ours, id)
        }
      })
      total.failed += seen.failed
      total.requests += seen.requests
      total.redeploys += redeploysPerRound
      return { ...total }
    },
  }
}

const none: Goal = { kind: 'atMost', value: 0 }

/** Redeployments while half of the clients ask over HTTPS, the others over one connection of HTTP/2. */
export const figure: Figure<Bench> = {
  id: '10b',
  rows: [
    { id: '10b', what: 'failed in all redeploys, h1 and h2', unit: 'requests', goal: none, key: 'failed', over: 'max' },
    { id: '10b-asked', what: 'requests in those windows', unit: 'requests', goal: null, key: 'requests', over: 'max' },
    { id: '10b-deploys', what: 'redeployments', unit: '', goal: null, key: 'redeploys', over: 'max' },
  ],
  warmups: 0,
  floor: null,
  ours: openOurs,
}
