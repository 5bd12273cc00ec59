/**
 * Two organizations build on one engine. Neither can reach the other's layers or images, or this machine: all ways that
 * a review has found are tried (C1, C2, H1, M1 and M3 of that review).
 */
import assert from 'node:assert/strict'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import { pack } from 'tar-stream'
import { cacheScopeOf } from '../src/builds/builder.ts'
import { finish } from '../src/images/engine-images.ts'
import { newId } from '../src/lib/ids.ts'
import { type BuildScene, openBuildScene } from './support/docker/build-scene.ts'
import { busyboxImage } from './support/docker/busybox-image.ts'
import { engine } from './support/docker/docker.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { createApplication, deploy, deploymentLog, type Place, settle } from './support/slipway/story.ts'
import { until } from './support/until.ts'

const a = newId()
const b = newId()
const leaked = 'INTERNAL-SECRET'
const made: string[] = []
const networks: string[] = []
let scene: BuildScene
let host: Server
let port: number
let asked = 0

before(async () => {
  scene = await openBuildScene({ reachesOnlyGit: true })
  host = createServer((_, answer) => {
    asked += 1
    answer.end(`${leaked}\n`)
  })
  await new Promise<void>((resolve) => host.listen(0, '0.0.0.0', resolve))
  port = (host.address() as AddressInfo).port
})

after(async () => {
  for (const tag of made) await engine.call('DELETE', `/images/${tag}`, { query: { force: true } }).catch(() => {})
  for (const name of networks) await engine.call('DELETE', `/networks/${name}`).catch(() => {})
  await scene?.close()
  host?.close()
  await engine.close()
})

/** An image that was put on the engine without Slipway. */
const putOnEngine = async (tag: string, dockerfile: string, files: Record<string, string> = {}): Promise<string> => {
  const archive = pack()
  archive.entry({ name: 'Dockerfile' }, dockerfile)
  for (const [name, text] of Object.entries(files)) archive.entry({ name }, text)
  archive.finalize()
  made.push(tag)
  await finish(await engine.stream('POST', '/build', { query: { version: 1, t: tag }, body: archive }))
  return (await engine.call<{ Id: string }>('GET', `/images/${tag}/json`)).Id
}

// Not wget's own -T: Debian's busybox ends in a segmentation fault with it, and would reach nothing wherever it went.
const reach = (target: string): string =>
  `timeout 3 wget -q -O - http://${target}/ 2>&1 | grep ${leaked} || echo nothing at ${target}`

/** Proves that a RUN without access could have reached something: the server of its own container. */
const reachOneself = `mkdir /own; echo ${leaked} > /own/index.html; httpd -p 8081 -h /own; ${reach('127.0.0.1:8081')}`

/** The number of connections that were made. */
const leaksIn = (log: string): number => log.replaceAll(/^Step .*$/gm, '').split(leaked).length - 1

test('a layer of one organization is never in the image of another, whatever the cache would offer', async () => {
  const files = {
    Dockerfile: `FROM ${busyboxImage}\nCOPY f /f\nRUN head -c 8 /dev/urandom | base64 > /mark; cat /mark\n`,
    f: newId(),
  }
  const of = async (organizationId: string, more: string) => {
    const changed = { ...files, Dockerfile: `${files.Dockerfile}RUN echo mark=$(cat /mark) ${more}\n` }
    const { log, imageId } = await scene.buildFiles(changed, { organizationId })
    return { log, imageId, mark: /^mark=(\S+)/m.exec(log)![1]! }
  }
  const first = await of(a, 'one')
  const again = await of(a, 'two')
  const other = await of(b, 'one')
  assert.equal(again.mark, first.mark)
  assert.match(again.log, /Using cache/)
  assert.notEqual(other.mark, first.mark)
  assert.doesNotMatch(other.log, /Using cache/)
  assert.notEqual(other.imageId, first.imageId)
})

test('builds of another project or mode of the organization are not reused: no image, no step, no cache', async () => {
  const run = 'RUN --mount=type=cache,id=npm,target=/c'
  const poison = { Dockerfile: `FROM ${busyboxImage}\n${run} echo poisoned > /c/package # ${newId()}\n` }
  const victim = { Dockerfile: `FROM ${busyboxImage}\n${run} cat /c/package || echo clean # ${newId()}\n` }
  const [own, mode, project] = [
    cacheScopeOf('one', 'DEVELOPMENT'),
    cacheScopeOf('one', 'PRODUCTION'),
    cacheScopeOf('two', 'DEVELOPMENT'),
  ]
  await scene.buildFiles(poison, { organizationId: a, cacheScope: own })
  for (const cacheScope of [mode, project])
    assert.match((await scene.buildFiles(victim, { organizationId: a, cacheScope })).log, /^clean$/m)
  assert.match((await scene.buildFiles(victim, { organizationId: a, cacheScope: own })).log, /^poisoned$/m)

  // The same text with another end: only the step could be reused. The same files: the image could be.
  const step = `FROM ${busyboxImage}\nRUN head -c 8 /dev/urandom | base64 > /mark # ${newId()}\n`
  const url = await scene.repository({ Dockerfile: `${step}RUN echo mark=$(cat /mark)\n` })
  const builds = []
  for (const cacheScope of [own, mode, project, own])
    builds.push(await scene.build(url, { organizationId: a, cacheScope }))
  assert.deepEqual(
    builds.map(({ skipped }) => skipped),
    [false, false, false, true],
  )
  const marks = builds.slice(0, 3).map(({ log }) => /^mark=(\S+)/m.exec(log)![1])
  assert.equal(new Set(marks).size, 3)
})

test('a proxy reaches a RUN only in a stage that declares it', async () => {
  const env = { http_proxy: `http://127.0.0.1:${port}`, HTTPS_PROXY: 'http://x' }
  const Dockerfile = `ARG http_proxy
FROM ${busyboxImage}
RUN echo "one=$http_proxy$HTTPS_PROXY." # ${newId()}
FROM ${busyboxImage}
ARG http_proxy
RUN echo "two=$http_proxy"
COPY --from=0 /bin/sh /x
`
  const { log } = await scene.buildFiles({ Dockerfile }, { organizationId: b, env })
  assert.match(log, /^one=\.$/m)
  assert.match(log, new RegExp(`^two=http://127.0.0.1:${port}$`, 'm'))
})

test('addresses that the policy forbids are never fetched, by the engine or by us, however an ADD is written', async () => {
  const from = `FROM ${busyboxImage}\n`
  const at = `127.0.0.1:${port}`
  const ways = [
    `${from}ADD http://${at}/plain /leak`,
    `${from}ENV S=/\nADD http:\${S}/${at}/env-split /leak`,
    `${from}ADD ["http:\\u002f\\u002f${at}/json-escape","/leak"]`,
    `# foo=bar\n# escape=\`\n${from}RUN true # \`\nADD http://${at}/escape-directive /leak`,
    `${from}ADD http:\\//${at}/backslash /leak`,
  ]
  for (const way of ways)
    await scene.refused({ Dockerfile: `${way}\nRUN cat /leak\n` }, { organizationId: b }, 'build_refused')
  assert.equal(asked, 0)
})

test('nor by a trigger of a base image', async () => {
  const bad = await putOnEngine(
    'slipway-test-onbuild:1',
    `FROM ${busyboxImage}\nONBUILD ADD http://127.0.0.1:${port}/x /leak\n`,
  )
  scene.given.set('registry.example.test/onb', bad)
  const files = { Dockerfile: 'FROM registry.example.test/onb:1\nRUN cat /leak\n' }
  const { message } = await scene.refused(files, { organizationId: b }, 'build_refused')
  assert.match(message, /ADD http.*this address cannot be used/)
  assert.equal(asked, 0)
})

test('images of others on the engine cannot be used: by name, by tag or by id', async () => {
  const id = await putOnEngine('registry.tenant-a.example/team/private-app:1', `FROM ${busyboxImage}\nCOPY s /s\n`, {
    s: newId(),
  })
  const own = await scene.buildFiles(
    { Dockerfile: `FROM ${busyboxImage}\nCOPY s /s\n`, s: `A-SOURCE-SECRET ${newId()}` },
    { organizationId: a },
  )
  const { RepoTags } = await engine.call<{ RepoTags: string[] }>('GET', `/images/${own.imageId}/json`)
  const hex = own.imageId.replace('sha256:', '')
  const refused = [RepoTags[0]!, hex, own.imageId, id, `slipway/${a}/x:1`]
  for (const name of refused)
    for (const text of [`FROM ${name}\n`, `FROM ${busyboxImage}\nCOPY --from=${name} /s /s\n`])
      await scene.refused({ Dockerfile: text }, { organizationId: b }, 'build_refused')
  for (const name of ['registry.tenant-a.example/team/private-app:1', hex.slice(0, 12)])
    for (const text of [`FROM ${name}\n`, `FROM ${busyboxImage}\nCOPY --from=${name} /s /s\n`])
      await scene.refused({ Dockerfile: text }, { organizationId: b }, 'build_failed')
  const mine = { Dockerfile: `FROM ${hex}\nRUN cat /s # ${newId()}\n` }
  assert.match((await scene.buildFiles(mine, { organizationId: a })).log, /A-SOURCE-SECRET/)
})

/** A network as an environment has one. */
const addNetwork = async (): Promise<{ subnet: string; gateway: string }> => {
  const name = `slipway-test-${newId()}`
  const used = (await engine.call<{ IPAM: { Config: { Subnet?: string }[] | null } }[]>('GET', '/networks')).flatMap(
    ({ IPAM }) => (IPAM.Config ?? []).map(({ Subnet }) => Subnet),
  )
  const place = Array.from({ length: 60 }, (_, index) => `10.251.${4 * index}`).find(
    (each) => !used.includes(`${each}.0/22`),
  )!
  const Config = [{ Subnet: `${place}.0/22`, Gateway: `${place}.1` }]
  await engine.call('POST', '/networks/create', { body: { Name: name, Driver: 'bridge', IPAM: { Config } } })
  networks.push(name)
  return { subnet: `${place}.0/22`, gateway: `${place}.1` }
}

test('a RUN has neither NET_RAW nor MKNOD, gains nothing, and reaches no address of this machine', async () => {
  const { Gateway } = (await engine.call<{ IPAM: { Config: { Gateway: string }[] } }>('GET', '/networks/bridge')).IPAM
    .Config[0]!
  const other = await addNetwork()
  const others = [other.subnet, other.gateway]
  const targets = [`${Gateway}:${port}`, `${other.gateway}:${port}`, '169.254.169.254', '100.100.100.200']
  const Dockerfile = `FROM ${busyboxImage}
RUN grep -E 'CapEff|NoNewPrivs' /proc/self/status; ip route
RUN ${reach(`$(ip route | sed -n 's/default via \\([0-9.]*\\) .*/\\1/p'):${port}`)}
RUN ${reachOneself}
RUN ${targets.map(reach).join('; ')}; ip route del blackhole 169.254.0.0/16 || echo kept
RUN nslookup $(hostname) 127.0.0.11 | grep -q Address && echo names are found # ${newId()}
`
  const { log } = await scene.buildFiles({ Dockerfile }, { organizationId: b })
  const capabilities = BigInt(`0x${/CapEff:\s*([0-9a-f]+)/.exec(log)![1]}`)
  assert.equal(capabilities & 0x2000n, 0n)
  assert.equal(capabilities & 0x800_0000n, 0n)
  assert.match(log, /NoNewPrivs:\s*1/)
  assert.match(log, /blackhole 169\.254\.0\.0\/16/)
  const shown = [...log.matchAll(/^blackhole (\S+)/gm)].map(([, route]) => route!)
  assert.deepEqual(
    shown.filter((route) => others.includes(route)),
    [],
    'no network of others is shown',
  )
  assert.equal(leaksIn(log), 1, 'itself and nothing else')
  assert.equal(asked, 0)
  assert.match(log, /^kept$/m)
  assert.match(log, /^names are found$/m)
})

test('builds that run side by side do not reach each other', async () => {
  const control = new AbortController()
  let heard = ''
  const serving = scene.buildFiles(
    {
      Dockerfile: `FROM ${busyboxImage}
RUN echo address=$(ip -4 addr show eth0 | sed -n 's/.*inet \\([0-9.]*\\).*/\\1/p'); mkdir /w; echo ${leaked} > /w/index.html; httpd -f -p 8080 -h /w # ${newId()}
`,
    },
    { organizationId: b, signal: control.signal, onLog: (text) => (heard += text) },
  )
  serving.catch(() => {})
  const address = await until(async () => /^address=([0-9.]+)$/m.exec(heard)?.[1], {
    timeoutMs: 40_000,
    what: 'its address',
  })
  const Dockerfile = `FROM ${busyboxImage}\nARG TARGET\nRUN ${reachOneself}; ${reach('$TARGET:8080')} # ${newId()}\n`
  const { log } = await scene.buildFiles({ Dockerfile }, { organizationId: a, env: { TARGET: String(address) } })
  assert.match(log, /^nothing at [0-9.]+:8080$/m)
  assert.equal(leaksIn(log), 1, 'itself and nothing else')
  control.abort(new Error('seen enough'))
  await assert.rejects(serving, /seen enough/)
})

test('neither a RUN nor a COPY starts while the engine’s disk has less free space than the reserve', async () => {
  const full = await openBuildScene({ diskReserveMb: 1e12 })
  try {
    for (const line of ['RUN true', 'COPY . /copy']) {
      const files = { Dockerfile: `FROM ${busyboxImage}\n${line}\n` }
      const { message } = await full.refused(files, { organizationId: b }, 'build_failed')
      assert.match(message, /SLIPWAY_DISK_RESERVE_MB/)
    }
  } finally {
    await full.close()
  }
})

test('a build leaves nothing on the engine', async () => {
  const left = async (): Promise<string[]> => {
    const networks = await engine.call<{ Name: string }[]>('GET', '/networks')
    const containers = await engine.call<{ Names: string[] }[]>('GET', '/containers/json', { query: { all: true } })
    return [...networks.map(({ Name }) => Name), ...containers.flatMap(({ Names }) => Names)].filter((name) =>
      name.includes('slipway-build-'),
    )
  }
  await until(async () => (await left()).length === 0, { timeoutMs: 20_000, what: 'the end of all that builds made' })
})

const placeIn = async (slipway: Slipway, organizationId: string): Promise<Place> => {
  const project = (await slipway.api('POST', `/organization/${organizationId}/project`, { name: 'P' })).body
  const environmentName = `env-${organizationId.slice(0, 4)}`
  const environment = await slipway.api('POST', `/project/${project.id}/environment`, {
    name: environmentName,
    mode: 'DEVELOPMENT',
  })
  assert.equal(environment.status, 201, JSON.stringify(environment.body))
  return { organizationId, projectId: project.id, environmentId: environment.body.id, environmentName }
}

/** Deploys the files as a service of the organization; returns its log. */
const deployFiles = async (slipway: Slipway, git: GitServer, place: Place, name: string, text: string, env: Json) => {
  await git.createRepository(name)
  await git.commit(name, { Dockerfile: text }, 'first')
  const application = await createApplication(slipway, place, name, git.url(name))
  for (const [key, value] of Object.entries(env))
    await slipway.api('POST', `/application/${application.id}/environmentVariable`, { key, value })
  await deploy(slipway, application.id)
  await settle(slipway, application.id, 90_000)
  return deploymentLog(slipway, place.environmentId)
}

test('on a running server, a layer that one organization poisons by a proxy never runs for another', async () => {
  const git = await startGitServer()
  const slipway = await prepareSlipway()
  try {
    await slipway.start()
    const mark = newId()
    const common = `FROM ${busyboxImage}
ARG VERSION=${mark}
RUN echo "\${http_proxy:-fetched by nobody}" > /tool-$VERSION
`
    const [victim, attacker] = await Promise.all(
      ['Victim', 'Attacker'].map(
        async (name) => (await slipway.api('POST', '/organization', { name, plan: 'FREE' })).body.id,
      ),
    )
    // A proxy decides what a RUN fetches; the engine's cache key contains neither the proxy nor the response.
    const proxy = { http_proxy: 'http://EVIL.example.test' }
    const theirs = await placeIn(slipway, attacker)
    await deployFiles(slipway, git, theirs, 'attack', `ARG http_proxy\n${common}RUN cat /tool-$VERSION\n`, proxy)
    const log = await deployFiles(
      slipway,
      git,
      await placeIn(slipway, victim),
      'victim',
      `${common}RUN cat /tool-$VERSION; echo victim\n`,
      {},
    )
    assert.match(log, /victim/)
    assert.match(log, /^.*fetched by nobody$/m)
    assert.doesNotMatch(log, /EVIL/)
  } finally {
    await slipway.remove()
    await git.close()
  }
})
