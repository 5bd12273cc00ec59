/** The archives of small images as `docker save` writes them, for a node that can reach no registry. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { pack } from 'tar-stream'
import { exec } from '../../../src/lib/exec.ts'

/** An archive that is being written. */
export type Archive = ReturnType<typeof pack>

const archiveOf = async (fill: (archive: Archive) => void): Promise<Buffer> => {
  const archive = pack()
  fill(archive)
  archive.finalize()
  const chunks: Buffer[] = []
  for await (const chunk of archive) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

const digestOf = (content: Buffer | string): string => createHash('sha256').update(content).digest('hex')

/** What a small image has: busybox of this machine, programs of its own in /usr/bin, and what `more` writes. */
export const busyboxLayer = async (
  programs: Record<string, string> = {},
  more: (root: Archive) => void = () => {},
): Promise<Buffer> => {
  const path = '/bin/busybox'
  const { stdout } = await exec(path, ['--list-full'], { env: {}, timeoutMs: 10_000 })
  return archiveOf((root) => {
    root.entry({ name: 'bin/busybox', mode: 0o755 }, readFileSync(path))
    for (const [name, text] of Object.entries(programs)) root.entry({ name: `usr/bin/${name}`, mode: 0o755 }, text)
    for (const name of stdout.trim().split('\n'))
      if (name !== 'bin/busybox') root.entry({ name, type: 'symlink', linkname: '/bin/busybox' })
    root.entry({ name: 'tmp', type: 'directory', mode: 0o1777 })
    root.entry({ name: 'etc/passwd' }, 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n')
    root.entry({ name: 'etc/group' }, 'root:x:0:\nnogroup:x:65534:\n')
    more(root)
  })
}

/** Busybox of this machine under its usual name, and the image that holds the namespaces of a pod. */
export const busyboxArchive = async (tags: { busybox: string; pause: string }): Promise<Buffer> => {
  const layer = await busyboxLayer()
  const settings = (command: string[]): string =>
    JSON.stringify({
      ...{ architecture: process.arch === 'arm64' ? 'arm64' : 'amd64', os: 'linux', history: [] },
      config: { Env: ['PATH=/bin:/sbin:/usr/bin:/usr/sbin'], Cmd: command },
      rootfs: { type: 'layers', diff_ids: [`sha256:${digestOf(layer)}`] },
    })
  const images = [
    { tag: tags.busybox, settings: settings(['sh']) },
    // It is killed, never asked to end.
    { tag: tags.pause, settings: settings(['sleep', '2147483647']) },
  ]
  return archiveOf((all) => {
    all.entry({ name: 'layer.tar' }, layer)
    for (const { settings: text } of images) all.entry({ name: `${digestOf(text)}.json` }, text)
    const manifest = images.map(({ tag, settings: text }) => ({
      ...{ Config: `${digestOf(text)}.json`, RepoTags: [tag], Layers: ['layer.tar'] },
    }))
    all.entry({ name: 'manifest.json' }, JSON.stringify(manifest))
  })
}
