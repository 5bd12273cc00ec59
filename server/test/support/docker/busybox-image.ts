/**
 * An image of busybox for tests on the real engine, made the way the product makes it (builds/engine/base-image.ts), so
 * that tests run where no registry can be reached. Under a name of its own: what an engine has as `busybox:1` may be old,
 * or somebody's. Racing calls end with the same tag.
 */
import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { buildBusybox } from '../../../src/builds/engine/base-image.ts'
import { findImage } from '../../../src/images/engine-images.ts'
import { createEngine } from '../../../src/lib/docker/docker-engine.ts'
import { exec } from '../../../src/lib/exec.ts'

const program = '/bin/busybox'
const recipe = new URL('../../../src/builds/engine/base-image.ts', import.meta.url)

const hash = createHash('sha256').update(readFileSync(recipe))
if (existsSync(program)) hash.update(readFileSync(program))

export const busyboxName = 'slipway-test-busybox'
/** Another one for each content. */
export const busyboxTag = hash.digest('hex').slice(0, 12)
export const busyboxImage = `${busyboxName}:${busyboxTag}`

const installBusybox = async (): Promise<void> => {
  if (existsSync(program)) return
  const env = { PATH: process.env.PATH ?? '/usr/sbin:/usr/bin:/sbin:/bin', DEBIAN_FRONTEND: 'noninteractive' }
  for (const args of [['update'], ['install', '--yes', '--no-install-recommends', 'busybox-static']]) {
    const { code, stderr } = await exec('apt-get', args, { env, timeoutMs: 120_000 })
    if (code !== 0) throw new Error(`apt-get ${args[0]} failed: ${stderr.trim()}`)
  }
}

/** Makes sure that the engine of DOCKER_HOST (or the local socket) holds it under this name, and returns the name. */
export const ensureBusybox = async (tag = busyboxImage): Promise<string> => {
  await installBusybox()
  const engine = createEngine()
  try {
    if ((await findImage(engine, tag)) === null) await buildBusybox(engine, tag)
  } finally {
    await engine.close()
  }
  return tag
}
