/**
 * An organization cannot use any image of another one on a real engine, and a tenant's registry cannot make this
 * machine call an address that the policy for outgoing requests refuses.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { deaf } from './support/docker/apps.ts'
import { busyboxImage, busyboxName, busyboxTag, ensureBusybox } from './support/docker/busybox-image.ts'
import { containersOf, engine } from './support/docker/docker.ts'
import {
  challengeOf,
  type FakeRegistry,
  makeImage,
  startFakeRegistry,
  startTrap,
} from './support/docker/fake-registry.ts'
import {
  type Login,
  login,
  logins,
  type Registry,
  registryIsMissing,
  startRegistry,
  untag,
} from './support/docker/registry.ts'
import { startGitServer } from './support/peers/git-server.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { settleAt } from './support/slipway/story.ts'

interface Tenant {
  organizationId: string
  environmentId: string
}

let slipway: Slipway
let a: Tenant
let b: Tenant
const open: (() => unknown)[] = []

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const createTenant = async (name: string): Promise<Tenant> => {
  const organization = await send('POST', '/organization', { name, plan: 'FREE' })
  const project = await send('POST', `/organization/${organization.id}/project`, { name })
  const environment = await send('POST', `/project/${project.id}/environment`, { name, mode: 'DEVELOPMENT' })
  return { organizationId: organization.id, environmentId: environment.id }
}

before(async () => {
  await ensureBusybox()
  // Loopback is allowed except for one address, where connections are counted.
  const env = { SLIPWAY_OUTBOUND_ALLOW: '127.0.0.1/32', SLIPWAY_ENGINE_IMAGES: busyboxName }
  slipway = await prepareSlipway({ env })
  await slipway.start()
  a = await createTenant('aaa')
  b = await createTenant('bbb')
})

after(async () => {
  await slipway?.remove()
  for (const close of open) await close()
  const tags = (await engine.call<Json[]>('GET', '/images/json')).flatMap(({ RepoTags }) => RepoTags ?? [])
  const left = tags.filter((tag: string) => [a, b].some(({ organizationId }) => tag.includes(organizationId)))
  await engine.close()
  assert.deepEqual(left, [], 'images of organizations that were reset')
})

let made = 0

const addRegistry = async (tenant: Tenant, url: string, config: Partial<Login> = {}): Promise<string> => {
  const body = { name: `registry-${++made}`, kind: 'GENERIC_CR', description: 'images', url, config }
  return (await send('POST', `/organization/${tenant.organizationId}/containerRegistry`, body)).id
}

const addContainer = async (tenant: Tenant, registryId: string, image: string, tag = '1'): Promise<string> => {
  const { id } = await send('POST', `/environment/${tenant.environmentId}/container`, {
    name: `container-${++made}`,
    registry_id: registryId,
    image_name: image,
    tag,
    memory: 32,
    entrypoint: 'sh -c',
    arguments: ['exec sleep 1000'],
    healthchecks: {},
  })
  return id
}

const act = async (path: string, verb: string, body?: unknown): Promise<string> => {
  await send('POST', `${path}/${verb}`, body)
  return settleAt(slipway, path)
}

/** The final state of a deploy, and its log. */
const deployNew = async (tenant: Tenant, registryId: string, image: string, tag?: string): Promise<string> => {
  const id = await addContainer(tenant, registryId, image, tag)
  const state = await act(`/container/${id}`, 'deploy')
  const { body } = await slipway.api('GET', `/environment/${tenant.environmentId}/logs`)
  const last = body.map((entry: Json) => entry.error?.user_log_message ?? '').filter((text: string) => text !== '')
  return `${state} ${state === 'DEPLOYED' ? '' : (last.at(-1) ?? '')}`
}

const namesOn = async (): Promise<string[]> => {
  const rows = await engine.call<Json[]>('GET', '/images/json')
  return rows.flatMap(({ RepoTags, RepoDigests }) => [...(RepoTags ?? []), ...(RepoDigests ?? [])])
}

describe('a registry with logins', { skip: registryIsMissing }, () => {
  let registry: Registry

  before(async () => {
    registry = await startRegistry()
    open.push(registry.close)
    await registry.publish(busyboxImage, 'team/private', '1')
  })

  test('an organization cannot use what another has pulled, by tag, by digest, or with the registry gone', async () => {
    const dying = await startRegistry()
    await dying.publish(busyboxImage, 'team/private', '1')
    const own = await addContainer(a, await addRegistry(a, dying.url, login), 'team/private')
    assert.equal(await act(`/container/${own}`, 'deploy'), 'DEPLOYED')
    const [release] = (await send('GET', `/container/${own}/release`)).results
    const digest = release.image.slice(release.image.indexOf('@') + 1)
    assert.ok(!(await namesOn()).some((name) => name.startsWith(dying.host)), 'the engine has a name of the registry')

    const foreign = await addRegistry(b, dying.url)
    for (const tag of ['1', digest]) assert.match(await deployNew(b, foreign, 'team/private', tag), /^DEPLOYMENT_ERROR/)
    await dying.close()
    for (const tag of ['1', digest]) assert.match(await deployNew(b, foreign, 'team/private', tag), /^DEPLOYMENT_ERROR/)
    // Its owner keeps working without any request to the registry.
    assert.equal(await act(`/container/${own}`, 'restart-service'), 'RESTARTED')
    assert.equal(await act(`/container/${own}`, 'redeploy'), 'DEPLOYED')
  })

  test('passwords of every length from 8 to 20 deploy, and wrong ones are distinguished from missing images', async () => {
    const ids: string[] = []
    for (const each of logins) ids.push(await addContainer(a, await addRegistry(a, registry.url, each), 'team/private'))
    await send('POST', `/environment/${a.environmentId}/deploy`)
    for (const [at, id] of ids.entries())
      assert.equal(await settleAt(slipway, `/container/${id}`), 'DEPLOYED', `${logins[at]!.password.length} characters`)
    const wrong = await addRegistry(a, registry.url, { ...login, password: 'wrong-canary' })
    const denied = await deployNew(a, wrong, 'team/private')
    assert.match(denied, /^DEPLOYMENT_ERROR .*team\/private:1 .*rejected this login/)
    assert.ok(!denied.includes('canary'))
    const right = await addRegistry(a, registry.url, login)
    assert.match(await deployNew(a, right, 'team/absent'), /^DEPLOYMENT_ERROR .*team\/absent:1 .*no such image/)
    for (const id of ids) await send('DELETE', `/container/${id}`)
  })
})

test('an image that is on the engine under any other name than an official one cannot be used', async () => {
  const name = `foreign-${made}-${process.pid}`
  const repos = [name, `team/${name}`, `127.0.0.1:9/${name}`]
  for (const repo of repos) await engine.call('POST', `/images/${busyboxImage}/tag`, { query: { repo, tag: '1' } })
  try {
    const hub = await send('POST', `/organization/${b.organizationId}/containerRegistry`, {
      name: 'hub',
      kind: 'DOCKER_HUB',
      description: 'public',
      url: 'https://docker.io',
      config: {},
    })
    for (const image of [name, `team/${name}`]) assert.match(await deployNew(b, hub.id, image), /^DEPLOYMENT_ERROR/)
    const silent = await addRegistry(b, 'http://127.0.0.1:9')
    assert.match(await deployNew(b, silent, name), /^DEPLOYMENT_ERROR/)
    assert.match(
      await deployNew(b, hub.id, `library/${busyboxName}`, busyboxTag),
      /^DEPLOYED/,
      'an official one stands in',
    )
  } finally {
    for (const repo of repos) await untag(`${repo}:1`)
  }
})

describe('a registry of a tenant', () => {
  let registry: FakeRegistry
  let trap: Awaited<ReturnType<typeof startTrap>>
  let registryId: string

  before(async () => {
    registry = await startFakeRegistry()
    trap = await startTrap('127.0.0.2')
    open.push(registry.close, trap.close)
    registry.publish('app:1', await makeImage())
    registryId = await addRegistry(b, registry.url.origin)
  })

  test('that names an internal token service learns nothing from it, and it is never called', async () => {
    registry.bend((_, response) => {
      response.writeHead(401, { 'www-authenticate': challengeOf(`http://${trap.host}/latest/meta-data/role`) }).end()
      return true
    })
    assert.match(await deployNew(b, registryId, 'app'), /^DEPLOYMENT_ERROR .*SLIPWAY_OUTBOUND_ALLOW/)
    assert.equal(trap.connections(), 0)
    assert.ok(!registry.asked.some((each) => each.includes('from-inside')))
  })

  test('that redirects its blobs to an internal address learns nothing from it, and it is never called', async () => {
    registry.bend((request, response) => {
      if (!request.url!.includes('/blobs/')) return false
      response.writeHead(307, { location: `http://${trap.host}/latest/meta-data/role` }).end()
      return true
    })
    assert.match(await deployNew(b, registryId, 'app'), /^DEPLOYMENT_ERROR .*SLIPWAY_OUTBOUND_ALLOW/)
    assert.equal(trap.connections(), 0)
  })
})

test('a plan for a commit reveals nothing about a repository that the organization cannot read now', async () => {
  const git = await startGitServer()
  open.push(git.close)
  await git.createRepository('private')
  const commitId = await git.commit('private', deaf('private'), 'first')
  const body = { git_repository: { url: git.url('private'), branch: 'main' }, build_mode: 'DOCKER', memory: 32 }
  const application = async (tenant: Tenant): Promise<string> =>
    (await send('POST', `/environment/${tenant.environmentId}/application`, { name: `app-${++made}`, ...body })).id
  const own = await application(a)
  assert.equal(await act(`/application/${own}`, 'deploy'), 'DEPLOYED')
  const foreign = await application(b)
  git.setFault({ kind: 'redirect', to: 'http://127.0.0.1:9/gone' })
  const plan = await send('POST', `/application/${foreign}/deploy?dry_run=true`, { git_commit_id: commitId })
  const [{ changes, builds }] = plan.stages.flatMap(({ services }: Json) => services)
  assert.deepEqual([changes.image, builds], [null, true])
  assert.equal(changes.commit?.to ?? null, null)
  assert.deepEqual(await containersOf(foreign), [])
})
