/** The example of examples/shop for tests: its files, its program, and the image that it takes from a registry. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pack } from 'tar-stream'
import { engine } from '../docker/docker.ts'
import { login, type Registry, untag } from '../docker/registry.ts'
import type { GitServer } from '../peers/git-server.ts'
import { adminToken, type Json, type Slipway } from './slipway.ts'

const folder = new URL('../../../../examples/shop/', import.meta.url)

export interface ShopArguments {
  server: string
  token: string
  repository: string
  branch: string
  folder: string
  registry: string
  username: string
  password: string
  tag: string
  environment: string
}

export interface Shop {
  organizationId: string
  environmentId: string
  services: Record<'database' | 'migrate' | 'prices' | 'orders' | 'front' | 'nightly', Json>
}

/** The program of the example, which is plain JavaScript without types. */
export const { createShop, deployShop } = (await import(new URL('create.mjs', folder).href)) as {
  createShop(args: ShopArguments): Promise<Shop>
  deployShop(args: ShopArguments, shop: Shop, tell?: (line: string) => void): Promise<string>
}

const filesBelow = (name: string): Record<string, string> => {
  const entries = readdirSync(new URL(name, folder), { recursive: true, withFileTypes: true })
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
  const root = new URL(name, folder).pathname
  return Object.fromEntries(paths.map((path) => [path.slice(root.length), readFileSync(path, 'utf8')]))
}

const localImage = 'slipway-test-shop-prices:1'

const buildPrices = async (files: Record<string, string>): Promise<void> => {
  const archive = pack()
  for (const [name, content] of Object.entries({ ...filesBelow('prices/'), ...files })) archive.entry({ name }, content)
  archive.finalize()
  const query = { t: localImage, version: 1, rm: true, forcerm: true }
  const output = await engine.stream('POST', '/build', { query, body: archive, deadlineMs: 60_000 })
  let text = ''
  for await (const chunk of output.setEncoding('utf8')) text += chunk
  if (text.includes('errorDetail')) throw new Error(text)
}

/** Puts the image into the registry and leaves none on the engine. `files`: what differs from the example's. */
export const publishPrices = async (registry: Registry, files: Record<string, string> = {}): Promise<void> => {
  await buildPrices(files)
  await registry.publish(localImage, 'shop/prices', '1')
  await untag(localImage)
}

/** Puts the sources into a repository, below `examples/shop`, and the image into the registry. */
export const publishShop = async (
  slipway: Slipway,
  git: GitServer,
  registry: Registry,
): Promise<Omit<ShopArguments, 'environment'>> => {
  await git.createRepository('shop')
  const files = Object.entries(filesBelow('')).map(([name, text]) => [`examples/shop/${name}`, text] as const)
  await git.commit('shop', Object.fromEntries(files), 'the shop')
  await publishPrices(registry)
  return {
    server: slipway.url,
    token: adminToken,
    repository: git.url('shop'),
    branch: 'main',
    folder: '/examples/shop',
    registry: registry.url,
    ...login,
    tag: '1',
  }
}
