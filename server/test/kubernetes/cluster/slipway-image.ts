/** The image of Slipway as `deploy/Dockerfile` makes it, of what this machine has: for a node that can reach no registry. */
import { existsSync, readdirSync, readFileSync, readlinkSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import { type FakeImage, imageOf } from '../../support/docker/fake-registry.ts'
import { librariesOf } from '../../support/docker/libraries.ts'
import { bundledServer } from '../../support/slipway/slipway.ts'
import { type Archive, busyboxLayer } from './image.ts'

const checkout = new URL('../../../../', import.meta.url).pathname
const here = '/slipway'

/** A file, a link or a folder of the checkout, without its tests. */
const addTree = (root: Archive, path: string): void => {
  const from = join(checkout, path)
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const name = join(path, entry.name)
    if (entry.isDirectory()) addTree(root, name)
    else if (!entry.name.endsWith('.test.ts')) addFile(root, name)
  }
}

const addFile = (root: Archive, path: string): void => {
  const mode = path.startsWith('bin/') || path.endsWith('.sh') || path.includes('/bin/') ? 0o755 : 0o644
  root.entry({ name: `${here}/${path}`, mode }, readFileSync(join(checkout, path)))
}

/** What runs the server beside busybox; a small init takes in processes whose parents ended, where there is one. */
const programs = ['bash', 'git', 'tini', 'cksum', 'sort', 'find', 'xargs']
  .map((name) => `/usr/bin/${name}`)
  .filter((path) => existsSync(path))

export const slipwayImage = async (): Promise<FakeImage> => {
  const bundle = (await bundledServer())
    .at(-1)!
    .slice(checkout.length)
    .replace(/\/[^/]+$/, '')
  const node = 'node_modules/node/bin/node'
  const found = await Promise.all([...programs, join(checkout, node)].map(librariesOf))
  const libraries = new Set(found.flat())
  const layer = await busyboxLayer({}, (root) => {
    for (const path of [...programs, ...libraries])
      root.entry({ name: path, mode: 0o755 }, readFileSync(realpathSync(path)))
    for (const tree of ['bin', 'server/src', 'docs/guides', 'node_modules/yaml', bundle]) addTree(root, tree)
    for (const file of [
      'package.json',
      'package-lock.json',
      'server/package.json',
      'node_modules/.slipway-stamp',
      node,
    ])
      addFile(root, file)
    const link = 'node_modules/.bin/node'
    root.entry({ name: `${here}/${link}`, type: 'symlink', linkname: readlinkSync(join(checkout, link)) })
  })
  const init = programs.includes('/usr/bin/tini') ? ['/usr/bin/tini', '--'] : []
  return imageOf(layer, {
    ...{ User: '10001:10001', WorkingDir: here, Env: ['PATH=/usr/bin:/bin:/usr/sbin:/sbin'] },
    Entrypoint: [...init, `${here}/bin/run`, 'main'],
  })
}
