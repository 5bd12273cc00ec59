/**
 * The image `busybox:1` for tests on the real engine, made the way the product makes it (builds/engine/base-image.ts), so that
 * tests run where no registry can be reached. Racing calls end with the same tag.
 */
import { existsSync } from 'node:fs'
import { buildBusybox } from '../../../src/builds/engine/base-image.ts'
import { findImage } from '../../../src/images/engine-images.ts'
import { createEngine } from '../../../src/lib/docker/docker-engine.ts'
import { exec } from '../../../src/lib/exec.ts'

const tag = 'busybox:1'

const installBusybox = async (): Promise<void> => {
  if (existsSync('/bin/busybox')) return
  const env = { PATH: process.env.PATH ?? '/usr/sbin:/usr/bin:/sbin:/bin', DEBIAN_FRONTEND: 'noninteractive' }
  for (const args of [['update'], ['install', '--yes', '--no-install-recommends', 'busybox-static']]) {
    const { code, stderr } = await exec('apt-get', args, { env, timeoutMs: 120_000 })
    if (code !== 0) throw new Error(`apt-get ${args[0]} failed: ${stderr.trim()}`)
  }
}

/** Makes sure that the engine of DOCKER_HOST (or the local socket) holds `busybox:1`, and returns that name. */
export const ensureBusybox = async (): Promise<string> => {
  await installBusybox()
  const engine = createEngine()
  try {
    if ((await findImage(engine, tag)) === null) await buildBusybox(engine, tag)
  } finally {
    await engine.close()
  }
  return tag
}
