/** The owners of new volumes, on the real engine. */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { busyboxImage, ensureBusybox } from '../../../test/support/docker/busybox-image.ts'
import { engine } from '../../../test/support/docker/docker.ts'
import { buildImage } from '../../../test/support/docker/program-image.ts'
import { clean, createTask, signal } from '../../../test/support/runtimes/conformance.ts'
import { newId } from '../../lib/ids.ts'
import { createLog } from '../../lib/log.ts'
import { createDockerRuntime, type DockerRuntime } from './docker.ts'
import { ownerOf } from './volume-owners.ts'

const passwd = 'root:x:0:0::/root:/bin/sh\nweb:x:1000:1001::/:/bin/sh\nbad:x:-1:abc::/:\n'
const group = 'root:x:0:\nstaff:x:50:web\n'

test('a user is the one of the image, as numbers, or null', () => {
  const cases: [string, number, number][] = [
    ['1000', 1000, 1001],
    ['web', 1000, 1001],
    ['7', 7, 0],
    ['7:8', 7, 8],
    ['web:staff', 1000, 50],
    ['1000:', 1000, 1001],
  ]
  for (const [user, uid, gid] of cases) assert.deepEqual(ownerOf(user, passwd, group), { uid, gid }, user)
  for (const user of ['nobody', 'web:nobody', 'bad', '4294967295'])
    assert.equal(ownerOf(user, passwd, group), null, user)
})

describe('volumes of programs that are not root', () => {
  const tag = `slipway-test-owners-${newId()}:1`
  let runtime: DockerRuntime
  let image: string
  before(async () => {
    await ensureBusybox()
    const table = passwd.replaceAll('\n', '\\n')
    await buildImage(
      tag,
      {},
      `RUN printf '${table}' > /etc/passwd; mkdir -p /kept /mine; echo file > /kept/file; chown 42:43 /mine\nUSER web`,
    )
    image = (await engine.call<{ Id: string }>('GET', `/images/${tag}/json`)).Id
    runtime = createDockerRuntime({ ownerId: `owners-test-${newId()}`, log: createLog('silent') })
  })
  after(async () => {
    await clean(runtime)
    await runtime.close()
    await engine.call('DELETE', `/images/${tag}`, { query: { force: true } })
    await engine.close()
  })

  /** The output of a task with volumes at these places. */
  const say = async (script: string, paths: string[], more: object = {}): Promise<string[]> => {
    const volumes = paths.map((mountPath) => ({ id: newId(), mountPath, sizeGb: 4 }))
    const lines: string[] = []
    const program = { image, entrypoint: ['sh', '-c'], arguments: [script] }
    await runtime.run(createTask(program, { volumes, ...more }), (line) => lines.push(line), signal())
    return lines
  }

  test('an empty new volume belongs to the image’s user, also under a read-only root', async () => {
    for (const readOnlyRoot of [false, true])
      assert.deepEqual(
        await say("echo hi > /data/x; stat -c '%u %g %a' /data /srv/deep; cat /data/x", ['/data', '/srv/deep'], {
          readOnlyRoot,
        }),
        ['1000 1001 755', '1000 1001 755', 'hi'],
      )
  })

  test('what the image has there keeps its owner and its files', async () => {
    assert.deepEqual(await say("stat -c '%u %g' /kept /kept/file /mine", ['/kept', '/mine']), ['0 0', '0 0', '42 43'])
  })

  test('a volume that holds something is left as it is', async () => {
    const volumes = [{ id: newId(), mountPath: '/data', sizeGb: 4 }]
    const run = async (user: string, script: string): Promise<string[]> => {
      const lines: string[] = []
      const program = { image: user === 'root' ? busyboxImage : image, entrypoint: ['sh', '-c'], arguments: [script] }
      await runtime.run(createTask(program, { volumes }), (line) => lines.push(line), signal())
      return lines
    }
    await run('root', 'echo old > /data/old')
    assert.deepEqual(await run('web', "stat -c '%u %g' /data /data/old"), ['0 0', '0 0'])
  })
})
