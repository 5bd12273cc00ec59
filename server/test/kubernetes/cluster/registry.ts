/**
 * A registry of this machine from which the node of the tests pulls small images, under its own name and as the public
 * one.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createOutbound, type Outbound } from '../../../src/lib/net/outbound.ts'
import { type FakeRegistry, imageOf, startFakeRegistry } from '../../support/docker/fake-registry.ts'
import { busyboxLayer } from './image.ts'
import { host, ownNode, port } from './scene.ts'

/** The address of this machine as the node knows it: the one before its own. */
export const outsideAddress = (): string => host.replace(/\d+$/, (last) => String(Number(last) - 1))

/** A database that is configured like its public image: it keeps its files in its volume, and asks for its user. */
const databasePrograms = {
  'docker-entrypoint.sh': `#!/bin/sh
cat > /data/redis.conf
echo "$(id -u) began" >> /data/index.html
exec httpd -f -p 6379 -h /data
`,
  'redis-cli': '#!/bin/sh\nexec wget -q -O /dev/null http://127.0.0.1:6379/index.html\n',
}
const run = { Env: ['PATH=/bin:/usr/bin'], Cmd: ['sh'] }

/** The node finds a registry here. */
export const leadTo = (registry: string, url: string): void => {
  const folder = join(ownNode!, 'registries', registry)
  mkdirSync(folder, { recursive: true })
  const text = `server = "${url}"\n[host."${url}"]\n  capabilities = ["pull", "resolve"]\n`
  writeFileSync(join(folder, 'hosts.toml'), text)
}

/** By which `private/app:1` is pulled. */
export const privateLogin = { username: 'reader', password: 'a word' }

/**
 * With `shop/app:1`, which has a user of its own, the same as `private/app:1`, which needs the login, `shop/root:1`,
 * which has no user, and `library/redis:7`.
 */
export const startNodeRegistry = async (): Promise<FakeRegistry> => {
  const basic = `${privateLogin.username}:${privateLogin.password}`
  const registry = await startFakeRegistry({ basic, under: 'private/' }, outsideAddress())
  leadTo(registry.host, registry.url.origin)
  leadTo('docker.io', registry.url.origin)
  for (const name of ['shop/app:1', 'private/app:1'])
    registry.publish(name, imageOf(await busyboxLayer(), { ...run, User: '10001' }))
  registry.publish('shop/root:1', imageOf(await busyboxLayer({ nothing: '' }), run))
  registry.publish('library/redis:7', imageOf(await busyboxLayer(databasePrograms), run))
  return registry
}

/** An outbound client for whom every registry is that one. */
export const onlyRegistry = (registry: () => FakeRegistry): Outbound => {
  const local = createOutbound({ allow: ['loopback', outsideAddress(), `${host}:${port}`, host] })
  return {
    ...local,
    open: (wanted) => {
      const { pathname, search } = new URL(String(wanted.url))
      return local.open({ ...wanted, url: new URL(pathname + search, registry().url) })
    },
  }
}
