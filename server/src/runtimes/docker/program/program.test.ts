/** Programs and images that cannot run on the engine: each is reported as one sentence with the cause. */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { pack } from 'tar-stream'
import { busyboxImage, ensureBusybox } from '../../../../test/support/docker/busybox-image.ts'
import { engine } from '../../../../test/support/docker/docker.ts'
import { ensureNodeImage, nodeImage } from '../../../../test/support/docker/node-image.ts'
import {
  clean,
  createTask,
  createWorkload,
  deploymentError,
  signal,
  start,
} from '../../../../test/support/runtimes/conformance.ts'
import { failureOf } from '../../../deployments/tasks/tasks.ts'
import { newId } from '../../../lib/ids.ts'
import { createLog } from '../../../lib/log.ts'
import type { Workload } from '../../runtime.ts'
import { createDockerRuntime, type DockerRuntime } from '../docker.ts'

/** The head of a program for another architecture than this machine's. */
const foreignElf = (): Buffer => {
  const head = Buffer.alloc(120)
  head.write('\x7fELF', 0, 'latin1')
  head.set([2, 1, 1], 4)
  head.writeUInt16LE(2, 16)
  head.writeUInt16LE(process.arch === 'arm64' ? 62 : 183, 18)
  return head
}

const buildImage = async (dockerfile: string, files: Record<string, string | Buffer>): Promise<string> => {
  const tag = `slipway-test-program-${newId()}:1`
  const archive = pack()
  archive.entry({ name: 'Dockerfile' }, dockerfile)
  for (const [name, content] of Object.entries(files)) archive.entry({ name, mode: 0o755 }, content)
  archive.finalize()
  const query = { t: tag, rm: true, forcerm: true }
  let text = ''
  for await (const chunk of await engine.stream('POST', '/build', { query, body: archive })) text += chunk
  assert.ok(!text.includes('errorDetail'), text)
  const { Id } = await engine.call<{ Id: string }>('GET', `/images/${tag}/json`)
  return Id
}

describe('programs that cannot run', () => {
  let runtime: DockerRuntime
  const images: string[] = []
  const image = async (dockerfile: string, files: Record<string, string | Buffer> = {}): Promise<string> => {
    const id = await buildImage(dockerfile, files)
    images.push(id)
    return id
  }
  before(async () => {
    await ensureBusybox()
    await ensureNodeImage()
    runtime = createDockerRuntime({ ownerId: `program-test-${newId()}`, log: createLog('silent') })
  })
  after(async () => {
    await clean(runtime)
    await runtime.close()
    for (const id of images) await engine.call('DELETE', `/images/${id}`, { query: { force: true } })
    await engine.close()
  })

  /** The messages about a service and a task of this image. */
  const told = async (of: string, over: Partial<Workload> = {}): Promise<string[]> => {
    const program = { image: of, entrypoint: null, arguments: null }
    const service = await deploymentError(start(runtime, createWorkload(program, over)))
    const lines: string[] = []
    const volumes = over.volumes ?? []
    const task = runtime
      .run(createTask(program, { volumes }), (line) => lines.push(line), signal())
      .then(
        (end) => failureOf(end, 64, lines)!,
        (error: Error) => error,
      )
    return [service.message, (await task).message]
  }

  test('an image without a command, and a volume on a file of the image, are refused with the reason', async () => {
    const bare = await image('FROM scratch\nCOPY a /app/db.sqlite\n', { a: 'a' })
    for (const message of await told(bare)) assert.match(message, /^The image says no command to run: add CMD/)
    const file = await image(`FROM ${busyboxImage}\nCOPY a /app/db.sqlite\nCMD ["sleep", "1"]\n`, { a: 'a' })
    const volumes = [{ id: newId(), mountPath: '/app/db.sqlite', sizeGb: 4 }]
    for (const message of await told(file, { volumes }))
      assert.equal(
        message,
        'A volume cannot be mounted at /app/db.sqlite, which is a file in the image: mount it at the folder that contains the file.',
      )
  })

  test('a program of another architecture is reported as such, with and without a shell in the image', async () => {
    const app = foreignElf()
    for (const base of ['scratch', busyboxImage]) {
      const id = await image(`FROM ${base}\nCOPY app /app\nENTRYPOINT ["/app"]\n`, { app })
      for (const message of await told(id))
        assert.match(message, /\/app is built for another CPU architecture: it is for \w+, and the machine.* is \w+\./)
    }
  })

  test('a script with line ends of Windows, without its interpreter or without #! is reported as such', async () => {
    const script = async (text: string) =>
      told(await image(`FROM ${busyboxImage}\nCOPY run /usr/bin/run\nCMD ["run"]\n`, { run: text }))
    for (const message of await script('#!/bin/sh\r\necho hello\r\n'))
      assert.match(message, /first line of the script \/usr\/bin\/run ends in a carriage return/)
    for (const message of await script('#!/bin/bash\necho hello\n'))
      assert.match(message, /\/usr\/bin\/run names the interpreter \/bin\/bash, which the image does not have/)
  })

  test('a job that fails says what it printed and what its code means', async () => {
    const run = async (script: string) => {
      const program = { image: busyboxImage, entrypoint: ['sh', '-c'], arguments: [script] }
      const lines: string[] = []
      const end = await runtime.run(createTask(program), (line) => lines.push(line), signal())
      return failureOf(end, 64, lines)!.message
    }
    assert.match(
      await run('nope'),
      /^The job exited with code 127: the command was not found\. It said: .*nope: not found$/,
    )
    assert.match(await run('echo "Error: no database"; exit 9'), /code 9: .* It said: Error: no database$/)
  })

  test('a program that listens on IPv6 only is reported within a minute', async () => {
    const script = `require('http').createServer((_, a) => a.end()).listen({ host: '::', port: 8080, ipv6Only: true })`
    const workload = createWorkload({ image: nodeImage, entrypoint: ['/bin/node', '-e'], arguments: [script] })
    const error = await deploymentError(start(runtime, { ...workload, memoryMb: 256, readyTimeoutMs: 300_000 }))
    assert.match(
      error.message,
      /program listens on \[::\]:8080 for IPv6 only, but is reached over IPv4: make it listen on 0/,
    )
  })
})
