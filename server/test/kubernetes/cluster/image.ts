/** The archives of small images as `docker save` writes them, for a node that can reach no registry. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { pack } from 'tar-stream'
import { exec } from '../../../src/lib/exec.ts'
import { readNodeFiles } from '../../support/docker/node-files.ts'

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

interface Tagged {
  tag: string
  /** A tar archive. */
  layer: Buffer
  command: string[]
}

/** Images of one layer each. */
const imagesArchive = (images: readonly Tagged[]): Promise<Buffer> =>
  archiveOf((all) => {
    const manifest = images.map(({ tag, layer, command }) => {
      const settings = JSON.stringify({
        ...{ architecture: process.arch === 'arm64' ? 'arm64' : 'amd64', os: 'linux', history: [] },
        config: { Env: ['PATH=/bin:/sbin:/usr/bin:/usr/sbin'], Cmd: command },
        rootfs: { type: 'layers', diff_ids: [`sha256:${digestOf(layer)}`] },
      })
      const [config, file] = [`${digestOf(settings)}.json`, `${digestOf(layer)}.tar`]
      all.entry({ name: config }, settings)
      all.entry({ name: file }, layer)
      return { Config: config, RepoTags: [tag], Layers: [file] }
    })
    all.entry({ name: 'manifest.json' }, JSON.stringify(manifest))
  })

/** Busybox of this machine under its usual name, and the image that holds the namespaces of a pod. */
export const busyboxArchive = async (tags: { busybox: string; pause: string }): Promise<Buffer> => {
  const layer = await busyboxLayer()
  return imagesArchive([
    { tag: tags.busybox, layer, command: ['sh'] },
    // It is killed, never asked to end.
    { tag: tags.pause, layer, command: ['sleep', '2147483647'] },
  ])
}

/** The Node that runs this test. */
export const nodeArchive = async (tag: string): Promise<Buffer> => {
  const files = await readNodeFiles()
  const layer = await archiveOf((root) => {
    for (const [name, content] of files) root.entry({ name, mode: 0o755 }, content)
  })
  return imagesArchive([{ tag, layer, command: ['/bin/node'] }])
}
