import assert from 'node:assert/strict'
import { test } from 'node:test'
import { standIn } from '../../../test/support/stand-in.ts'
import type { AnyRoute } from '../../router/router.ts'
import { type BlueGreenParts, createBlueGreen, noRouter } from './blue-green.ts'

test('a process that begins anew leaves an unready instance out once it keeps what it found, not by asking', async () => {
  const service = { environmentId: 'e', serviceId: 's' }
  const one = { ...service, revision: 'v1', unready: false, endpoints: { 80: { host: '10.0.0.1', port: 80 } } }
  const exposure = { hosts: [{ host: 'a.test', internalPort: 80, protocol: 'HTTP' as const }], ports: [] }
  const targets = Object.values(one.endpoints)
  let routes: AnyRoute[] = [{ host: 'a.test', protocol: 'HTTP', serviceId: 's', state: 'up', targets }]
  const router: BlueGreenParts['router'] = {
    ...noRouter,
    routes: async () => routes,
    setService: async (_, next) => {
      routes = [...next]
    },
  }
  const instances = standIn<BlueGreenParts['instances']>({ see: async () => [one] })
  const { ingress, follow } = createBlueGreen({ instances, router })
  const publication = { service, revision: 'v1', exposure }
  assert.equal((await ingress.look([service])).isAs(publication), true)
  one.unready = true
  await follow(service)
  assert.deepEqual(routes[0]?.targets, targets)
  ingress.keep(publication)
  await follow(service)
  assert.deepEqual(routes[0]?.targets, [])
})
