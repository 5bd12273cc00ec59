import assert from 'node:assert/strict'
import { test } from 'node:test'
import { applicationBody, headCommit, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'
import { completeGitRepository, viewGitRepository } from '../service/git-source.ts'
import { hostLabel, routesOf } from '../service/hosts.ts'
import { completePorts, toProbe, wordsOf } from '../service/parts.ts'
import { application } from './application.ts'

const api = await startApi({ idle: true })
const { call } = api

const create = async (body: Record<string, unknown>) => {
  const { environmentId } = await newPlace(api)
  return call('POST', `/environment/${environmentId}/application`, body)
}

test('an application is created from the fields that the specification shows, and answered with all that clients need', async () => {
  const { status, body } = await create(applicationBody('shop'))
  assert.equal(status, 201)
  assert.deepEqual(
    [body.name, body.cpu, body.memory, body.build_mode, body.service_type, body.healthchecks, body.auto_preview],
    ['shop', 500, 256, 'DOCKER', 'APPLICATION', {}, true],
  )
  const [port] = body.ports
  assert.match(port.id, /^[0-9a-f-]{36}$/)
  assert.deepEqual([port.internal_port, port.external_port, port.is_default, port.name], [3000, 443, true, 'p3000'])
  const { owner, name, provider, url, branch, root_path } = body.git_repository
  assert.deepEqual(
    [owner, name, provider, url, branch, root_path],
    ['example', 'shop', 'GITHUB', 'https://github.com/example/shop.git', 'main', '/'],
  )
})

test('name and repository are enough', async () => {
  const { status, body } = await create({ name: 'small', git_repository: { url: 'https://gitlab.example/a/b' } })
  assert.equal(status, 201)
  assert.deepEqual(
    [body.cpu, body.memory, body.min_running_instances, body.max_running_instances, body.dockerfile_path, body.ports],
    [500, 512, 1, 1, 'Dockerfile', []],
  )
  assert.equal(body.git_repository.provider, 'GITLAB')
})

test("the branch's head is answered as the deployed commit until something is deployed", async () => {
  const { body } = await create(applicationBody('head'))
  assert.equal(typeof body.git_repository.deployed_commit_id, 'string')
  const read = async () => (await call('GET', `/application/${body.id}`)).body.git_repository.deployed_commit_id
  await until(async () => (await read()) === headCommit, { what: 'the head' })
})

test('an edit keeps what it leaves out, and ports and storage keep their ids', async () => {
  const { environmentId } = await newPlace(api)
  const made = await newApplication(api, environmentId, {
    storage: [{ size: 4, mount_point: '/data' }],
    description: 'x',
  })
  const path = `/application/${made.id}`
  const ports = [...made.ports, { internal_port: 9000, publicly_accessible: true }]
  const { status, body } = await call('PUT', path, { cpu: 600, ports, healthchecks: {} })
  assert.equal(status, 200)
  assert.deepEqual(
    [body.cpu, body.memory, body.description, body.git_repository.url],
    [600, 256, 'x', made.git_repository.url],
  )
  assert.deepEqual([body.ports[0].id, body.ports.length], [made.ports[0].id, 2])
  assert.deepEqual(body.storage, made.storage)
  assert.equal((await call('PUT', path, { ports: [] })).body.ports.length, 0)
})

test('what the local cluster cannot do is refused with the field and what would be needed', async () => {
  const cases: [Record<string, unknown>, string][] = [
    [{ cpu: 10_000_000 }, '/cpu'],
    [{ cpu: 999_000 }, '/cpu'],
    [{ gpu: 1 }, '/gpu'],
    [{ autoscaling: { mode: 'KEDA' } }, '/autoscaling'],
    [{ min_running_instances: 3 }, '/min_running_instances'],
    [{ storage: [{ size: 3, mount_point: '/data' }] }, '/storage/0/size'],
    [{ storage: [{ size: 4, mount_point: '/data/../etc' }] }, '/storage/0/mount_point'],
    [{ storage: [{ size: 4, mount_point: '/proc' }] }, '/storage/0/mount_point'],
    [{ ports: [{ internal_port: 80 }, { internal_port: 80 }] }, '/ports/1/internal_port'],
    [
      { healthchecks: { readiness_probe: { type: { tcp: { port: 80, host: 'other.example' } } } } },
      '/healthchecks/readiness_probe/type/tcp/host',
    ],
    [{ dockerfile_path: '../Dockerfile' }, '/dockerfile_path'],
    [{ git_repository: { url: 'ext::sh -c true' } }, '/git_repository/url'],
    [{ git_repository: { url: 'https://github.com/a/b', branch: '--upload-pack=x' } }, '/git_repository/branch'],
    [{ git_repository: { url: 'https://github.com/a/b', root_path: '/a/../..' } }, '/git_repository/root_path'],
  ]
  for (const [more, field] of cases) {
    const { status, body } = await create(applicationBody('wrong', more))
    assert.deepEqual([status, body.details?.[0]?.field], [400, field], JSON.stringify(more))
    assert.doesNotMatch(body.message, /exist/)
  }
})

test('hosts are made from the names, never shared, and stay when names change', async () => {
  const { environmentId } = await newPlace(api)
  const first = await newApplication(api, environmentId, { name: 'Web Shop!' })
  const host = async (id: string): Promise<string> => {
    const { results } = (await call('GET', `/application/${id}/link`)).body
    return new URL(results.find((link: { is_default: boolean }) => link.is_default).url).hostname
  }
  const before = await host(first.id)
  assert.match(before, /^web-shop-env-\d+\.localhost$/)
  await call('PUT', `/application/${first.id}`, { name: 'renamed' })
  assert.equal(await host(first.id), before)
  const second = await newApplication(api, environmentId, { name: 'web shop?' })
  const other = await host(second.id)
  assert.notEqual(other, before)
  assert.match(other, /^web-shop-env-\d+-[0-9a-f]{6}\.localhost$/)
})

test('two services of one environment cannot have names that differ in case only', async () => {
  const { environmentId } = await newPlace(api)
  const path = `/environment/${environmentId}/application`
  await call('POST', path, applicationBody('Api'))
  assert.equal((await call('POST', path, applicationBody('aPI'))).status, 409)
  assert.equal((await call('GET', path)).body.results[0].name, 'Api')
})

test('the workload of an application is what its configuration says', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId, {
    entrypoint: `sh -c "a b" 'c'`,
    arguments: ['x'],
    storage: [{ size: 5, mount_point: '/data/' }],
    healthchecks: {
      readiness_probe: { type: { http: { path: '/ok' } }, initial_delay_seconds: 2, failure_threshold: 3 },
    },
    git_repository: { url: 'https://github.com/a/b', branch: 'dev', root_path: 'services/api/' },
    dockerfile_path: '/docker/Dockerfile',
    docker_target_build_stage: 'release',
  })
  // Existing clients compare the values they sent with the answer.
  const { body: shown } = await api.call('GET', `/application/${id}`)
  assert.deepEqual([shown.git_repository.root_path, shown.dockerfile_path], ['services/api/', '/docker/Dockerfile'])
  const [row] = await api.database.query<{ spec: Record<string, unknown> }>('select spec from node where id = $1', [id])
  const workload = application.deployable.workload(row!.spec)
  assert.deepEqual(workload.entrypoint, ['sh', '-c', 'a b', 'c'])
  assert.deepEqual(
    [workload.arguments, workload.cpuMillicores, workload.memoryMb, workload.instances],
    [['x'], 500, 256, 1],
  )
  assert.deepEqual(workload.readiness?.check, { kind: 'http', port: 3000, path: '/ok', scheme: 'HTTP' })
  assert.equal(workload.readyTimeoutMs, 1000 * (2 + 3 * (10 + 5)))
  assert.deepEqual([workload.volumes[0]?.mountPath, workload.volumes[0]?.sizeGb], ['/data', 5])
  assert.deepEqual(application.deployable.source(row!.spec), {
    from: 'git',
    git: { url: 'https://github.com/a/b', branch: 'dev', gitTokenId: null },
    rootPath: '/services/api',
    dockerfilePath: 'docker/Dockerfile',
    targetStage: 'release',
  })
})

test('repository addresses and branches that git could take for something else are refused, as is ssh', () => {
  const take = (url: string, branch: string) => () => completeGitRepository({ url, branch })
  for (const url of ['-x', 'ext::sh', 'file:///etc', 'https://u:p@h/a', 'ssh://git@h/a', 'git@github.com:a/b.git'])
    assert.throws(take(url, 'main'), { status: 400 }, url)
  for (const branch of ['-x', 'a..b', 'x.lock', 'a@{1}', ''])
    assert.throws(take('https://h/a', branch), { status: 400 }, branch)
  assert.equal(completeGitRepository({ url: 'https://h/a.git', branch: 'feature/a-b_1.2' }).branch, 'feature/a-b_1.2')
})

test('a head that was read is forgotten when the branch changes', () => {
  const kept = completeGitRepository({ url: 'https://h/a', branch: 'b' })
  const known = { ...kept, head_commit_id: 'abc' }
  assert.equal(completeGitRepository({ url: 'https://h/a', branch: 'b' }, known).head_commit_id, 'abc')
  assert.equal(completeGitRepository({ url: 'https://h/a', branch: 'c' }, known).head_commit_id, undefined)
  assert.equal(viewGitRepository(known, null, null).deployed_commit_id, 'abc')
  assert.equal(viewGitRepository(kept, null, null).deployed_commit_id, '')
  const { owner, name } = viewGitRepository({ ...kept, url: 'git@github.com:group/sub/app.git' }, null, null)
  assert.deepEqual([owner, name], ['group/sub', 'app'])
})

test('labels of hosts are DNS labels with room for a prefix, whatever the names', () => {
  for (const [service, environment] of [
    ['a'.repeat(200), 'b'],
    ['--', '!!'],
    ['p80-x', 'e'],
    ['Ünïcode', '環境'],
  ]) {
    const label = hostLabel(service!, environment!, '00000000-0000-7000-8000-000000000abc')
    assert.match(label, /^[a-z0-9]([a-z0-9-]{0,54}[a-z0-9])?$/, label)
    assert.doesNotMatch(label, /^p\d+-/)
  }
})

test('exactly one public web port is the default; the others have their port in the host', () => {
  const ports = completePorts(
    [
      { internal_port: 1 },
      { internal_port: 80, publicly_accessible: true },
      { internal_port: 81, publicly_accessible: true, is_default: true },
    ],
    [],
  )
  assert.deepEqual(
    ports.map((port) => port.is_default),
    [false, false, true],
  )
  assert.deepEqual(
    routesOf('x', ports).map(({ host, port, isDefault }) => [host, port, isDefault]),
    [
      ['p80-x.localhost', 80, false],
      ['x.localhost', 81, true],
      ['p81-x.localhost', 81, false],
    ],
  )
})

test('each way to probe, its words and its pace reach the instance, and what is left out has its default', () => {
  const ports = completePorts([{ internal_port: 8080, publicly_accessible: true }], [])
  const kept = {
    initial_delay_seconds: 1,
    period_seconds: 2,
    timeout_seconds: 3,
    success_threshold: 4,
    failure_threshold: 5,
  }
  const pace = { initialDelaySeconds: 1, periodSeconds: 2, timeoutSeconds: 3, successThreshold: 4, failureThreshold: 5 }
  const http = { kind: 'http', port: 8080, path: '/', scheme: 'HTTP' }
  for (const [type, check] of [
    [{ tcp: { port: 5432 } }, { kind: 'tcp', port: 5432 }],
    [{ tcp: {} }, { kind: 'tcp', port: 8080 }],
    [{ http: {} }, http],
    [{ http: { scheme: 'HTTP' as const, path: '/up', port: 81 } }, { ...http, path: '/up', port: 81 }],
    [{ http: { scheme: 'HTTPS' as const, path: '/up' } }, { ...http, path: '/up', scheme: 'HTTPS' }],
    [{ grpc: {} }, { kind: 'grpc', port: 8080, service: '' }],
    [{ grpc: { port: 81, service: 'shop.Orders' } }, { kind: 'grpc', port: 81, service: 'shop.Orders' }],
    [{ exec: { command: ['ok', 'a b'] } }, { kind: 'exec', command: ['ok', 'a b'] }],
    [
      { tcp: null, http: null, exec: { command: ['ok'] } },
      { kind: 'exec', command: ['ok'] },
    ],
  ] as const)
    assert.deepEqual(toProbe({ ...kept, type } as Parameters<typeof toProbe>[0], ports), { ...pace, check })
  for (const type of [undefined, null, {}, { tcp: null }])
    assert.equal(toProbe({ ...kept, ...(type === undefined ? {} : { type }) }, ports), null)
})

test('without a probe there is none, and entrypoints are split into words', () => {
  assert.equal(toProbe(undefined, []), null)
  assert.equal(wordsOf('  '), null)
  assert.deepEqual(wordsOf('a  "b c"'), ['a', 'b c'])
})
