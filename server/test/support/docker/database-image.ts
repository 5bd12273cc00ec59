/**
 * Stand-ins for the usual database images, for tests on the real engine where none can be pulled: made from the host's
 * Debian packages, with the usual contract of each (database-images/). The server inside is the one Debian has, not the
 * one of the tag: PostgreSQL 15 as `postgres:16`, MariaDB 10.11 as `mysql:8` and Redis 7.0 as `redis:7` on Debian 12.
 * An image with the label `slipway.test` is ours; a real one of that name is used as it is.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createEngine, type Engine, isEngineError } from '../../../src/lib/docker/docker-engine.ts'
import { cacheFolder, withLock } from '../../database-images/packages.ts'
import { fillRoot, type Software } from '../../database-images/root.ts'

export type DatabaseImage = 'postgres:16' | 'mysql:8' | 'redis:7'

interface ImageDetail {
  Id: string
  Config: { Labels: Record<string, string> | null }
}

const folder = new URL('../../database-images/', import.meta.url)
const recipeLabel = 'slipway.test.recipe'

const kindOf = (name: DatabaseImage): string => name.split(':')[0]!

const softwareOf: Record<DatabaseImage, Software> = {
  'postgres:16': {
    user: 'postgres',
    home: 'var/lib/postgresql',
    packages: ['postgresql', 'tzdata'],
    links: ['usr/lib/postgresql/*/bin'],
    // Compiling queries needs LLVM, which is larger than all the rest; the server does without where this is missing.
    without: ['usr/lib/postgresql/*/lib/bitcode', 'usr/lib/postgresql/*/lib/llvmjit*'],
  },
  'mysql:8': {
    user: 'mysql',
    home: 'var/lib/mysql',
    packages: ['mariadb-server-core', 'mariadb-client'],
    links: [],
    without: [
      'usr/bin/mariadb-{binlog,check,import,plugin,show,slap}',
      'usr/bin/{aria_*,innochecksum,my_search*,myisam*}',
    ],
  },
  'redis:7': { user: 'redis', home: 'data', packages: ['redis-server'], links: [], without: [] },
}

const findImage = async (engine: Engine, name: string): Promise<ImageDetail | null> => {
  try {
    return await engine.call('GET', `/images/${name}/json`)
  } catch (error) {
    if (isEngineError(error, 404)) return null
    throw error
  }
}

const readRecipe = async (name: DatabaseImage) => {
  const kind = kindOf(name)
  const entrypoint = await readFile(new URL(`${kind}.sh`, folder), 'utf8')
  const dockerfile = await readFile(new URL(`${kind}.Dockerfile`, folder), 'utf8')
  const makers = await Promise.all(['root.ts', 'packages.ts'].map((file) => readFile(new URL(file, folder), 'utf8')))
  const parts = JSON.stringify([entrypoint, dockerfile, makers, softwareOf[name]])
  return { entrypoint, dockerfile, hash: createHash('sha256').update(parts).digest('hex').slice(0, 16) }
}

type Recipe = Awaited<ReturnType<typeof readRecipe>>

/** A real image has no label of ours; one of ours serves until its recipe changes. */
const isUsable = (image: ImageDetail, { hash }: Recipe): boolean => {
  const labels = image.Config.Labels ?? {}
  return labels['slipway.test'] === undefined || labels[recipeLabel] === hash
}

const buildImage = async (engine: Engine, name: string, context: string, hash: string): Promise<void> => {
  const archive = spawn('tar', ['-C', context, '-c', '.'], { stdio: ['ignore', 'pipe', 'inherit'] }).stdout
  const labels = JSON.stringify({ 'slipway.test': '1', [recipeLabel]: hash })
  const query = { t: name, labels, version: 1, rm: true, forcerm: true }
  const output = await engine.stream('POST', '/build', { query, body: archive, deadlineMs: 300_000 })
  let text = ''
  for await (const chunk of output.setEncoding('utf8')) text = (text + chunk).slice(-65_536)
  if (text.includes('errorDetail')) throw new Error(text)
}

const makeImage = async (engine: Engine, name: DatabaseImage, recipe: Recipe): Promise<void> => {
  const context = join(cacheFolder, `context-${kindOf(name)}`)
  try {
    await rm(context, { recursive: true, force: true })
    await fillRoot(join(context, 'root'), softwareOf[name], recipe.entrypoint)
    await writeFile(join(context, 'Dockerfile'), recipe.dockerfile)
    await buildImage(engine, name, context, recipe.hash)
  } finally {
    await rm(context, { recursive: true, force: true })
  }
}

/** The image that a newer one of ours replaced, unless a container still has it. */
const removeReplaced = async (engine: Engine, image: ImageDetail): Promise<void> => {
  try {
    await engine.call('DELETE', `/images/${image.Id}`)
  } catch (error) {
    if (!isEngineError(error, 404, 409)) throw error
  }
}

/** Makes sure that the engine of DOCKER_HOST (or the local socket) holds an image of that name, and returns the name. */
export const ensureDatabaseImage = async (name: DatabaseImage): Promise<string> => {
  const engine = createEngine()
  try {
    const recipe = await readRecipe(name)
    const usable = async () => {
      const image = await findImage(engine, name)
      return { image, done: image !== null && isUsable(image, recipe) }
    }
    if ((await usable()).done) return name
    await withLock(`image-${kindOf(name)}`, async () => {
      const { image, done } = await usable()
      if (done) return
      await makeImage(engine, name, recipe)
      if (image !== null) await removeReplaced(engine, image)
    })
    return name
  } finally {
    await engine.close()
  }
}
