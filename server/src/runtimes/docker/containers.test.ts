import assert from 'node:assert/strict'
import { createServer } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { busyboxImage, ensureBusybox } from '../../../test/support/docker/busybox-image.ts'
import { startImages, type TestImages } from '../../../test/support/docker/organization-images.ts'
import {
  clean,
  createTask,
  createWorkload,
  deploymentError,
  ignore,
  type Program,
  signal,
  start,
  until,
} from '../../../test/support/runtimes/conformance.ts'
import { patience } from '../../../test/support/until.ts'
import { createEngine, type Engine } from '../../lib/docker/docker-engine.ts'
import { newId } from '../../lib/ids.ts'
import { createLog } from '../../lib/log.ts'
import { Secret } from '../../lib/secret.ts'
import type { Probe, Workload } from '../runtime.ts'
import { createDockerRuntime, type DockerRuntime } from './docker.ts'

const image = busyboxImage
const shell = (script: string): Program => ({ image, entrypoint: ['sh', '-c'], arguments: [script] })
const httpd: Program = { image, entrypoint: null, arguments: ['httpd', '-f', '-p', '8080'] }
const noPorts = { ports: [] }

interface Inspected {
  Config: { Labels: Record<string, string>; Entrypoint: string[] | null; Cmd: string[] | null; Env: string[] }
  HostConfig: Record<string, unknown>
  Mounts: { Type: string; Source: string }[]
  Path: string
  Args: string[]
}

const probe = (check: Probe['check'], over: Partial<Probe> = {}): Probe => ({
  check,
  initialDelaySeconds: 30,
  periodSeconds: 10,
  timeoutSeconds: 1,
  successThreshold: 1,
  failureThreshold: 3,
  ...over,
})

describe('containers on the real engine', () => {
  let runtime: DockerRuntime
  let images: TestImages
  let engine: Engine
  before(async () => {
    await ensureBusybox()
    engine = createEngine()
    images = await startImages()
    runtime = createDockerRuntime({ ownerId: `containers-test-${newId()}`, images, log: createLog('silent') })
  })
  after(async () => {
    await clean(runtime)
    await runtime.close()
    await images.close()
    await engine.close()
  })

  const inspect = (id: string) => engine.call<Inspected>('GET', `/containers/${id}/json`)
  const output = async (program: Program, environmentId: string): Promise<string[]> => {
    const lines: string[] = []
    await runtime.run(createTask(program, { environmentId }), (line) => lines.push(line), signal())
    return lines
  }
  const readiness = async (workload: Workload): Promise<string> => {
    await runtime.instances.apply(workload, ignore, signal())
    return runtime.instances.ready(workload, ignore, signal()).then(
      () => 'ready',
      (error) => `${error.code}: ${error.message}`,
    )
  }

  test('limits are set, and no container is privileged or reaches the host', async () => {
    const volumes = [{ id: newId(), mountPath: '/data', sizeGb: 1 }]
    const [instance] = await start(runtime, createWorkload(httpd, { cpuMillicores: 250, memoryMb: 48, volumes }))
    const { HostConfig, Mounts } = await inspect(instance!.id)
    assert.partialDeepStrictEqual(HostConfig, {
      NanoCpus: 250_000_000,
      Memory: 48 * 2 ** 20,
      MemorySwap: 48 * 2 ** 20,
      PidsLimit: 4096,
      Init: true,
      Privileged: false,
      PidMode: '',
      Binds: null,
      CapAdd: null,
      CapDrop: ['NET_RAW', 'MKNOD'],
      SecurityOpt: ['no-new-privileges'],
      RestartPolicy: { Name: 'unless-stopped', MaximumRetryCount: 0 },
      LogConfig: { Type: 'json-file', Config: { 'max-file': '3', 'max-size': '10m' } },
    })
    assert.match(String(HostConfig.NetworkMode), /^slipway-/)
    assert.deepEqual(
      Mounts.map(({ Type }) => Type),
      ['volume'],
    )
  })

  test('more processors than the host has give all that it has', async () => {
    const [instance] = await start(runtime, createWorkload(httpd, { cpuMillicores: 64_000 }))
    const { NCPU } = await engine.call<{ NCPU: number }>('GET', '/info')
    assert.equal((await inspect(instance!.id)).HostConfig.NanoCpus, NCPU * 1e9)
  })

  test('the error of a service that needs more memory than its limit says so, with the limit', async () => {
    const workload = createWorkload(shell('echo filling; tail /dev/zero'), { memoryMb: 16, ...noPorts })
    await runtime.instances.apply(workload, ignore, signal())
    const error = await deploymentError(runtime.instances.ready(workload, ignore, signal()))
    assert.equal(error.code, 'out_of_memory')
    assert.match(error.message, /16 MB/)
    assert.deepEqual(error.lines.includes('filling'), true)
  })

  test('a task that needs more memory than its limit says so', async () => {
    const task = createTask(shell('tail /dev/zero'), { memoryMb: 16 })
    assert.deepEqual(await runtime.run(task, ignore, signal()), {
      exitCode: 137,
      oomKilled: true,
      timedOut: false,
      outputs: {},
    })
  })

  test('an alias resolves and answers on its own environment; another can neither resolve nor reach it', async () => {
    const workload = createWorkload(httpd, { aliases: ['shop', 'service-1'] })
    await start(runtime, workload)
    const get = (host: string) => `printf "GET / HTTP/1.0\\r\\n\\r\\n" | nc -w 2 ${host} 8080 2>&1`
    const near = await output(
      shell(`nslookup service-1; A=$(nslookup shop | awk '/^Address: /{print $2; exit}'); ${get('$A')}; echo $A`),
      workload.environmentId,
    )
    assert.match(near.join(' '), /Name:\s+service-1.*404/)
    const far = await output(shell(`nslookup service-1; nslookup shop; ${get(near.at(-1)!)}; echo end`), newId())
    assert.doesNotMatch(far.join(' '), /Name:|404/)
    assert.equal(far.at(-1), 'end')
  })

  test('an environment value reaches the program, and neither argv nor labels', async () => {
    const word = `word-${newId()}`
    const program = shell('echo "got $WORD"; httpd -f -p 8080')
    const workload = createWorkload(program, { env: new Secret({ WORD: word }) })
    const [instance] = await start(runtime, workload)
    const { Config, Path, Args } = await inspect(instance!.id)
    assert.ok(Config.Env.includes(`WORD=${word}`))
    assert.ok(!JSON.stringify([Config.Labels, Config.Entrypoint, Config.Cmd, Path, Args]).includes(word))
    const texts: string[] = []
    for await (const { text } of runtime.logs(workload, { tail: 10 })) texts.push(text)
    assert.deepEqual(texts, [`got ${word}`])
  })

  test('files are there before the start, readable by root only when the image runs as root', async () => {
    const program = shell('cat /etc/app/word.txt; stat -c "%a %U" /etc/app/word.txt; httpd -f -p 8080')
    const files = new Secret([{ path: '/etc/app/word.txt', content: 'hunter2\n' }])
    const workload = createWorkload(program, { files })
    await start(runtime, workload)
    const texts: string[] = []
    for await (const { text } of runtime.logs(workload, { tail: 10 })) texts.push(text)
    assert.deepEqual(texts, ['hunter2', '400 root'])
  })

  test('an endpoint keeps its address when the engine starts the container again', async () => {
    const workload = createWorkload(httpd)
    const [instance] = await start(runtime, workload)
    await engine.call('POST', `/containers/${instance!.id}/restart`, { query: { t: 1 } })
    const [again] = await runtime.instances.ready(workload, ignore, signal())
    assert.deepEqual(again!.endpoints, instance!.endpoints)
    assert.match(again!.endpoints[8080]!.host, /^10\./)
    assert.equal(again!.endpoints[8080]!.port, 8080)
  })

  test('no port of an instance is on the host', async () => {
    const ports: Workload['ports'] = [
      { internalPort: 9000, protocol: 'TCP', publiclyAccessible: false },
      { internalPort: 9000, protocol: 'UDP', publiclyAccessible: true, externalPort: 30_001 },
    ]
    const [instance] = await start(runtime, createWorkload(shell('nc -ll -p 9000 -e cat'), { ports }))
    const { NetworkSettings } = await engine.call<{ NetworkSettings: { Ports: Record<string, unknown> } }>(
      'GET',
      `/containers/${instance!.id}/json`,
    )
    assert.deepEqual(NetworkSettings.Ports, { '9000/tcp': null, '9000/udp': null })
  })

  test('one that ended, was changed, or never started is put right by apply', async () => {
    const workload = createWorkload(httpd)
    const [instance] = await start(runtime, workload)
    await engine.call('POST', `/containers/${instance!.id}/kill`)
    await until('it is down', async () => (await runtime.observe([workload]))[0]!.state === 'exited' || null)
    const [revived] = await start(runtime, workload)
    assert.equal(revived!.id, instance!.id)

    const changed = { ...workload, memoryMb: 32 }
    const [replaced] = await start(runtime, changed)
    assert.notEqual(replaced!.id, instance!.id)

    const { Config, HostConfig } = await inspect(replaced!.id)
    await runtime.instances.retire(workload, null, 0, signal())
    const body = { ...Config, HostConfig }
    await engine.call('POST', '/containers/create', { query: { name: replaced!.name }, body })
    const [made] = await start(runtime, changed)
    assert.equal(made!.state, 'running')
  })

  test('a program that ignores SIGTERM ends when the grace is over, and one that heeds it at once', async () => {
    const deaf = createWorkload(shell('trap "" TERM; echo deaf; while :; do sleep 0.1; done'), noPorts)
    const polite = createWorkload(httpd)
    await Promise.all([start(runtime, deaf), start(runtime, polite)])
    const timed = async (service: Workload, graceMs: number) => {
      const begun = performance.now()
      await runtime.instances.retire(service, null, graceMs, signal())
      return performance.now() - begun
    }
    const deafMs = await timed(deaf, 1500)
    assert.ok(deafMs >= 1500 && deafMs < 2500 * patience, `took ${deafMs} ms`)
    const politeMs = await timed(polite, 20_000)
    assert.ok(politeMs < 1000 * patience, `took ${politeMs} ms`)
  })

  test('a missing image is named; nothing is pulled for a name without a registry', async () => {
    for (const missing of ['no-such-image:1', 'sha256:'.padEnd(71, '0'), 'localhost:1/no/such:1']) {
      const work = runtime.instances.apply(createWorkload({ ...httpd, image: missing }), ignore, signal())
      const error = await deploymentError(work)
      assert.equal(error.code, 'image_missing')
      assert.ok(error.message.includes(missing), error.message)
    }
  })

  test('a cancel does not wait for a registry that stays silent', async () => {
    const silent = createServer().listen(0, '127.0.0.1')
    await new Promise((resolve) => silent.once('listening', resolve))
    const asked = new Promise((resolve) => silent.on('connection', (socket) => resolve(socket.unref())))
    const { port } = silent.address() as { port: number }
    const workload = createWorkload({ ...httpd, image: `127.0.0.1:${port}/app@sha256:${'a'.repeat(64)}` })
    const controller = new AbortController()
    const work = runtime.instances.apply(workload, ignore, controller.signal)
    await Promise.race([asked, work])
    const begun = performance.now()
    controller.abort(new Error('canceled by the user'))
    await assert.rejects(work, /canceled by the user/)
    await runtime.instances.retire(workload, null, 0, signal())
    assert.ok(performance.now() - begun < 2000 * patience)
    silent.close()
  })

  test('a missing command is reported as the reason', async () => {
    const program = { image, entrypoint: ['/no/such/program'], arguments: null }
    const error = await deploymentError(start(runtime, createWorkload(program)))
    assert.match(`${error.code} ${error.message}`, /crash_loop.*the command was not found/)
    assert.match(error.lines.join(), /no.such.program/)
  })

  test('probes: their configuration decides, and the last finding is reported', async () => {
    const short = { readyTimeoutMs: 800 }
    const tcp: Workload['ports'] = [{ internalPort: 9000, protocol: 'TCP', publiclyAccessible: false }]
    const http = { kind: 'http', port: 8080, scheme: 'HTTP' } as const
    const cases: [string, Workload, RegExp][] = [
      [
        'missing page',
        createWorkload(httpd, { readiness: probe({ ...http, path: '/' }), ...short }),
        /^not_ready.*answered 404/,
      ],
      [
        'existing page',
        createWorkload(httpd, { readiness: probe({ ...http, path: '/etc/passwd' }, { successThreshold: 3 }) }),
        /^ready/,
      ],
      [
        'nothing behind a TCP port',
        createWorkload(shell('sleep 1000'), { ports: tcp, ...short }),
        /^not_ready.*nothing listens on port 9000/,
      ],
      ['something behind it', createWorkload(shell('nc -ll -p 9000 -e cat'), { ports: tcp }), /^ready/],
      [
        'a command that succeeds later',
        createWorkload(shell('sleep 0.5; touch /tmp/up; sleep 1000'), {
          ...noPorts,
          readiness: probe({ kind: 'exec', command: ['test', '-e', '/tmp/up'] }),
        }),
        /^ready/,
      ],
      [
        'a command that fails',
        createWorkload(shell('sleep 1000'), {
          ...noPorts,
          ...short,
          readiness: probe({ kind: 'exec', command: ['false'] }),
        }),
        /^not_ready.*exited with code 1/,
      ],
      ['nothing to ask', createWorkload(shell('sleep 1000'), noPorts), /^ready/],
      ['nothing to ask of what ends', createWorkload(shell('sleep 0.3; exit 4'), noPorts), /^crash_loop.*code 4/],
      ['a port it lacks', createWorkload(httpd, { readiness: probe({ kind: 'tcp', port: 1 }) }), /^not_ready.*port 1/],
    ]
    await Promise.all(
      cases.map(async ([name, workload, expected]) => assert.match(await readiness(workload), expected, name)),
    )
  })

  test('a network that was removed behind our back is made again', async () => {
    const workload = createWorkload(httpd)
    await start(runtime, workload)
    await runtime.instances.retire(workload, null, 0, signal())
    await engine.call('DELETE', `/networks/slipway-${workload.environmentId}`)
    const [instance] = await start(runtime, workload)
    assert.equal(instance!.state, 'running')
  })

  test('files of an image that runs as another user are readable by that user', async () => {
    const [root] = await start(runtime, createWorkload(httpd))
    const query = { container: root!.id, repo: `slipway-test-${newId()}`, tag: '1' }
    const { Id } = await engine.call<{ Id: string }>('POST', '/commit', { query, body: { User: 'nobody' } })
    try {
      const program = { ...shell('cat /etc/word.txt; id -un; exec httpd -f -p 8080'), image: Id }
      const workload = createWorkload(program, { files: new Secret([{ path: '/etc/word.txt', content: 'hunter2\n' }]) })
      await start(runtime, workload)
      const texts: string[] = []
      for await (const { text } of runtime.logs(workload, {})) texts.push(text)
      assert.deepEqual(texts, ['hunter2', 'nobody'])
      await runtime.instances.retire(workload, null, 0, signal())
    } finally {
      await engine.call('DELETE', `/images/${Id}`)
    }
  })

  test('long lines, bytes that are not text, and the last of many lines arrive whole and in order', async () => {
    const many = 60_000
    const script = `head -c 50000 /dev/zero | tr "\\0" x; echo; printf "\\377\\n"; seq 1 ${many}; echo last; exec httpd -f -p 8080`
    const workload = createWorkload(shell(script), { cpuMillicores: 2000 })
    await start(runtime, workload)
    const lines: string[] = []
    for await (const { text } of runtime.logs(workload, { follow: true, signal: signal() })) {
      lines.push(text)
      if (text === 'last') break
    }
    assert.equal(lines.length, many + 3)
    assert.ok(lines[0] === 'x'.repeat(50_000) && lines[1] === '\uFFFD')
    assert.ok(lines.slice(2, -1).every((text, index) => text === String(index + 1)))
    const tail: string[] = []
    for await (const { text } of runtime.logs(workload, { tail: 100 })) tail.push(text)
    assert.deepEqual([tail.length, tail[0], tail[99]], [100, String(many - 98), 'last'])
  })

  test('an instance whose liveness probe fails is restarted, one that is alive is not', async () => {
    const sick = shell('touch /tmp/alive; (sleep 2; rm /tmp/alive) & exec httpd -f -p 8080')
    const liveness = probe(
      { kind: 'exec', command: ['test', '-e', '/tmp/alive'] },
      { periodSeconds: 1, failureThreshold: 1 },
    )
    const ends = new AbortController()
    const died: string[] = []
    const watching = (async () => {
      for await (const event of runtime.watch(ends.signal)) if (event.kind === 'died') died.push(event.serviceId)
    })().catch(() => {})
    const failing = createWorkload(sick, { liveness: { ...liveness, initialDelaySeconds: 0 } })
    const keeping = runtime.keepAlive(ends.signal)
    const healthy = createWorkload(shell('touch /tmp/alive; exec httpd -f -p 8080'), {
      liveness: { ...liveness, initialDelaySeconds: 0 },
    })
    await start(runtime, healthy)
    await start(runtime, failing)
    await until('the restart', () => (died.includes(failing.serviceId) ? true : null))
    assert.equal(died.includes(healthy.serviceId), false)
    ends.abort()
    await Promise.all([watching, keeping])
  })
})
