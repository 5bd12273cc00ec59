/**
 * An image of this machine's own static busybox: it replaces `busybox:1` if no registry answers, is the base for tools
 * of the operator, and holds the networks of builds.
 */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { pack } from 'tar-stream'
import { findImage, finish } from '../../images/engine-images.ts'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import { exec } from '../../lib/exec.ts'
import { readableOf } from '../../lib/tar-streams.ts'

const passwd = 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n'
const recipe = 'FROM scratch\nCOPY root /\nENV PATH=/bin:/sbin:/usr/bin:/usr/sbin\nCMD ["sh"]\n'

/** A file system of one program and a link to it for each of its names. */
const busyboxContext = async (binary: string, content: Buffer): Promise<Readable> => {
  const listed = await exec(binary, ['--list-full'], { env: {}, timeoutMs: 10_000 })
  if (listed.code !== 0) throw new Error(`${binary} --list-full failed`)
  const archive = pack()
  archive.entry({ name: 'Dockerfile' }, recipe)
  archive.entry({ name: 'root/bin/busybox', mode: 0o755 }, content)
  for (const path of listed.stdout.trim().split('\n'))
    if (path !== 'bin/busybox') archive.entry({ name: `root/${path}`, type: 'symlink', linkname: '/bin/busybox' })
  archive.entry({ name: 'root/tmp', type: 'directory', mode: 0o1777 })
  archive.entry({ name: 'root/root', type: 'directory', mode: 0o700 })
  archive.entry({ name: 'root/etc/passwd' }, passwd)
  archive.entry({ name: 'root/etc/group' }, 'root:x:0:\nnogroup:x:65534:\n')
  archive.finalize()
  return readableOf(archive)
}

/** Creates the image and names it. Concurrent calls get the same name. */
export const buildBusybox = async (engine: Engine, tag: string, binary = '/bin/busybox'): Promise<void> => {
  // Layers of others are not used for these.
  const query = { version: 1, t: tag, rm: 1, forcerm: 1, nocache: 1 }
  const body = await busyboxContext(binary, await readFile(binary))
  await finish(await engine.stream('POST', '/build', { query, body, deadlineMs: 60_000 }))
}

/** Creates the image once for each content of the program; returns its id. Rejects if the machine has no busybox. */
export const createOwnBusybox = (engine: Engine, binary = '/bin/busybox') => {
  let making: Promise<string> | null = null

  const make = async (): Promise<string> => {
    const content = await readFile(binary)
    const tag = `slipway/tool-busybox:${createHash('sha256').update(recipe).update(content).digest('hex').slice(0, 16)}`
    const there = await findImage(engine, tag)
    if (there !== null) return there
    await buildBusybox(engine, tag, binary)
    const made = await findImage(engine, tag)
    if (made === null) throw new Error('the engine does not have it afterwards')
    return made
  }

  return async (): Promise<string> => {
    const known = making === null ? null : await making.then((id) => findImage(engine, id)).catch(() => null)
    if (known !== null) return known
    making = make()
    return making
  }
}
