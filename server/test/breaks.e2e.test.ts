// Runs alone: it measures, or takes what the machine has.
/**
 * Typical mistakes of the first day, made on a real engine: for each the sentence in the status, and the seconds until
 * it appears.
 */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { forEachParallel } from '../src/lib/concurrency/parallel.ts'
import { page } from './support/docker/apps.ts'
import { busyboxImage } from './support/docker/busybox-image.ts'
import { type FakeRegistry, startFakeRegistry } from './support/docker/fake-registry.ts'
import type { Json } from './support/slipway/slipway.ts'
import { createApplication, createPlace, deploymentLog, type Place } from './support/slipway/story.ts'
import { withSlipway } from './support/slipway/with-slipway.ts'
import { until } from './support/until.ts'

const { slipway, git } = await withSlipway()
const registry: FakeRegistry = await startFakeRegistry({ basic: 'puller:right' })
after(() => registry.close())

/** No sentence may take longer. */
const mostSeconds = 20
const atOnce = 3

const words = (command: readonly string[]): string => `CMD ${JSON.stringify(command)}`
const program = (script: string): Record<string, string> => ({
  Dockerfile: [`FROM ${busyboxImage}`, 'COPY page /www/index.html', words(['sh', '-c', script]), ''].join('\n'),
  page: 'here\n',
})
const dockerfile = (...lines: string[]): Record<string, string> => ({ Dockerfile: [...lines, ''].join('\n') })

interface Break {
  name: string
  files?: Record<string, string>
  more?: Record<string, unknown>
  /** A service made from an image of the registry, with this password. */
  password?: string
  /** The message in the status: its error or, for a running service, how its last instance ended. */
  says: RegExp
}

const portOf = (internal_port: number) => ({
  ports: [{ internal_port, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
})

const breaks: Break[] = [
  {
    name: 'wrong port',
    files: page('x'),
    more: portOf(3000),
    says: /^Nothing listens on port 3000; the program listens on 8080\./,
  },
  { name: 'no Dockerfile', files: { README: 'nothing\n' }, says: /has no Dockerfile/ },
  {
    name: 'build error',
    files: dockerfile(`FROM ${busyboxImage}`, 'RUN echo installing && npm ci'),
    says: /non-zero code: 127: the command was not found\. It said: .*npm: not found/,
  },
  {
    name: 'crash at start',
    files: program('echo "boom: bad config" >&2; exit 1'),
    says: /exited 3 times.*exit code 1.*It said: boom: bad config/,
  },
  {
    name: 'out of memory',
    files: program('httpd -p 8080 -h /www; sleep 2; exec tail /dev/zero'),
    more: { memory: 16 },
    says: /It ran out of memory: it was killed at its limit of 16 MB; raise `memory`/,
  },
  {
    name: 'wrong branch',
    files: page('x'),
    more: { git_repository: { branch: 'develop' } },
    says: /has no branch develop.*main/,
  },
  {
    name: 'wrong root path',
    files: page('x'),
    more: { git_repository: { branch: 'main', root_path: '/backend' } },
    says: /has no folder \/backend/,
  },
  {
    name: 'missing variable',
    files: program(': "${DATABASE_URL:?must be set}"; httpd -f -p 8080'),
    says: /exited 3 times.*It said: .*DATABASE_URL: must be set/,
  },
  { name: 'wrong registry password', password: 'wrong', says: /login|password|credentials|log in/i },
  {
    name: 'base image not to be had',
    files: dockerfile('FROM 127.0.0.1:9/node:22-alpine'),
    says: /base image .*node:22-alpine/i,
  },
  {
    name: 'listens on 127.0.0.1 only',
    files: program('exec httpd -f -p 127.0.0.1:8080 -h /www'),
    says: /listens on 127\.0\.0\.1:8080 only.*0\.0\.0\.0/,
  },
  {
    name: 'no such repository',
    more: { git_repository: { branch: 'main', name: 'nothing' } },
    says: /no such repository/,
  },
  {
    name: 'wrong command',
    files: dockerfile(`FROM ${busyboxImage}`, words(['/serve', '--all'])),
    says: /The image has no file \/serve: check the command and the entrypoint/,
  },
  {
    name: 'port in use inside',
    files: program('httpd -p 8080 -h /www; exec httpd -f -p 8080 -h /www'),
    says: /exited 3 times.*It said: .*ddress.* in use/,
  },
  {
    name: 'no space left in the build',
    files: dockerfile(`FROM ${busyboxImage}`, 'RUN cat /bin/busybox > /dev/full'),
    says: /build failed.*It said: .*No space left on device/,
  },
  {
    // Node's message: the static busybox cannot look up names.
    name: 'wrong host of the database',
    files: program('echo "Error: getaddrinfo ENOTFOUND db.invalid" >&2; exit 1'),
    says: /exited 3 times.*It said: .*getaddrinfo ENOTFOUND db\.invalid/,
  },
  { name: 'image tag is gone', password: 'right', says: /team\/web:9/ },
  {
    name: 'volume not writable',
    // A volume begins with what the image has there, and its owner.
    files: dockerfile(
      `FROM ${busyboxImage}`,
      'RUN mkdir /data && echo x > /data/kept',
      'USER 1000',
      words(['sh', '-c', 'echo x > /data/file || exit 1']),
    ),
    more: { storage: [{ mount_point: '/data', size: 4, type: 'FAST_SSD' }] },
    says: /exited 3 times.*It said: .*\/data\/file: Permission denied/,
  },
]

const createImageService = async (place: Place, password: string): Promise<string> => {
  const { organizationId, environmentId } = place
  const login = { username: 'puller', password }
  const made = await slipway.api('POST', `/organization/${organizationId}/containerRegistry`, {
    ...{ name: `registry ${password}`, kind: 'GENERIC_CR', description: '', url: registry.url.origin, config: login },
  })
  assert.equal(made.status, 201, JSON.stringify(made.body))
  const body = { name: 'web', registry_id: made.body.id, image_name: 'team/web', tag: '9', healthchecks: {} }
  const service = await slipway.api('POST', `/environment/${environmentId}/container`, body)
  assert.equal(service.status, 201, JSON.stringify(service.body))
  return `/container/${service.body.id}`
}

const createBroken = async (place: Place, number: number, { files, more, password }: Break): Promise<string> => {
  if (password !== undefined) return createImageService(place, password)
  const name = `break${number}`
  await git.createRepository(name)
  await git.commit(name, files ?? {}, 'first')
  const { git_repository: from, ...rest } = (more ?? {}) as Json
  const { name: other = name, ...where } = from ?? { branch: 'main' }
  const url = git.url(other)
  const made = await createApplication(slipway, place, 'web', url, { ...rest, git_repository: { url, ...where } })
  return `/application/${made.id}`
}

interface Told {
  name: string
  seconds: number
  sentence: string
}

const seconds = (sinceMs: number): number => Math.round((performance.now() - sinceMs) / 100) / 10

const breakIt = async (number: number, each: Break): Promise<Told> => {
  const place = await createPlace(slipway)
  const path = await createBroken(place, number, each)
  const startedAtMs = performance.now()
  const accepted = await slipway.api('POST', `${path}/deploy`)
  assert.equal(accepted.status, 202, JSON.stringify(accepted.body))
  let last = ''
  const sentence = await until(
    async () => {
      const { body } = await slipway.api('GET', `${path}/status`)
      last = JSON.stringify(body)
      const said: string[] = [body.error?.message, body.restarts?.message].filter((text) => text !== undefined)
      return said.find((text) => each.says.test(text))
    },
    { timeoutMs: (mostSeconds + 5) * 1000, what: each.name },
  ).catch(() => `not told: ${last}`)
  const told = { name: each.name, seconds: seconds(startedAtMs), sentence }
  if (/port|127/.test(each.name) && each.password === undefined && each.name !== 'port in use inside')
    assert.match(await deploymentLog(slipway, place.environmentId), /Waiting for HTTP \/ on port \d+ \(up to 300 s\)/)
  await slipway.api('POST', `/environment/${place.environmentId}/cancelDeployment`)
  return told
}

test('each of eighteen breaks shows as a sentence in the status, within 20 s', async (t) => {
  const table: Told[] = []
  await forEachParallel(atOnce, [...breaks.entries()], async ([number, each]) => {
    table.push(await breakIt(number, each))
  })
  for (const { name, seconds, sentence } of table) t.diagnostic(`| ${name} | ${seconds} s | ${sentence} |`)
  const late = table.filter(({ seconds }) => seconds > mostSeconds)
  assert.deepEqual(late, [])
  assert.deepEqual(
    table.filter(({ sentence }) => sentence.startsWith('not told')),
    [],
  )
  assert.equal(table.length, breaks.length)
})

test('a program that needs 25 s until it listens is deployed', async () => {
  const place = await createPlace(slipway)
  await git.createRepository('slow')
  await git.commit('slow', program('sleep 25; exec httpd -f -p 8080 -h /www'), 'first')
  const { id } = await createApplication(slipway, place, 'slow', git.url('slow'))
  await slipway.api('POST', `/application/${id}/deploy`)
  const status = await until(
    async () => {
      const { body } = await slipway.api('GET', `/application/${id}/status`)
      return /RUNNING|ERROR/.test(body.state) ? body : null
    },
    { timeoutMs: 90_000, what: 'the slow start' },
  )
  assert.deepEqual([status.state, status.error], ['RUNNING', undefined])
})
