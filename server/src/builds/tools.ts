/**
 * Programs of the operator for builds around a tool: OpenTofu and Terraform. Finds them through a setting or PATH, and
 * identifies each by its content, so that an image around one is built once. If a build's image contains the program,
 * the image made here contains our script alone.
 */

import { createHash } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import { pack } from 'tar-stream'
import { findImage, finish } from '../images/engine-images.ts'
import type { Engine } from '../lib/docker/docker-engine.ts'
import { DeploymentError } from '../lib/errors.ts'
import { exec, findProgram, isProgram } from '../lib/exec.ts'
import { readJson } from '../lib/foreign-text/read-json.ts'
import type { ToolBuild } from './builder.ts'

/** The configured path of each tool; default: found on PATH. */
export type ToolPaths = Readonly<Record<string, string | undefined>>

const described: Record<string, { word: string; setting: string }> = {
  tofu: { word: 'OpenTofu', setting: 'SLIPWAY_TOFU' },
  terraform: { word: 'Terraform', setting: 'SLIPWAY_TERRAFORM' },
  helm: { word: 'Helm', setting: 'SLIPWAY_HELM' },
}

/** Replaces a tool's name: an image without one. */
const scriptAlone = 'script'

/** The instruction for the operator. */
const missingSentence = (name: string): string => {
  const { word, setting } = described[name] ?? { word: name, setting: 'its setting' }
  return `${word} is not installed on this server: install \`${name}\` or set ${setting}.`
}

const script = new URL('./tool-script.sh', import.meta.url)
/** The script that runs a tool on a module, for an image without it. */
export const readToolScript = (): Promise<string> => readFile(script, 'utf8')
const certificates = '/etc/ssl/certs/ca-certificates.crt'
const recipe = (base: string) =>
  `FROM ${base.replace('sha256:', '')}\nCOPY root /\nENV PATH=/bin:/sbin:/usr/bin:/usr/sbin\n`

/** The program's path; null if it is not found. */
export const findTool = async (name: string, paths: ToolPaths): Promise<string | null> => {
  const set = paths[name]
  if (set === undefined) return findProgram(name)
  return (await isProgram(set)) ? set : null
}

const readIfThere = (path: string): Promise<Buffer> =>
  readFile(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return Buffer.alloc(0)
    throw error
  })

const contextOf = (base: string, name: string, binary: Buffer | null, own: Buffer, trusted: Buffer) => {
  const archive = pack()
  archive.entry({ name: 'Dockerfile' }, recipe(base))
  if (binary !== null) archive.entry({ name: `root/bin/${name}`, mode: 0o755 }, binary)
  archive.entry({ name: 'root/bin/slipway-module', mode: 0o755 }, own)
  archive.entry({ name: 'root/etc/ssl/certs/ca-certificates.crt', mode: 0o644 }, trusted)
  archive.finalize()
  return archive
}

/** One sentence with the instruction for the operator; null where the tool is installed. */
export const missingTool = async (name: string, paths: ToolPaths): Promise<string | null> =>
  (await findTool(name, paths)) === null ? missingSentence(name) : null

const versionMs = 10_000

/**
 * `terraform_version` of `<tool> version -json`, the name that both tools use; null for a program that prints
 * something else.
 */
const askVersion = async (path: string): Promise<string | null> => {
  // Without this it asks its vendor whether there is a newer version.
  const env = { PATH: '/usr/bin:/bin', HOME: '/nonexistent', CHECKPOINT_DISABLE: '1' }
  try {
    const { code, stdout } = await exec(path, ['version', '-json'], { env, cwd: '/', timeoutMs: versionMs })
    const { terraform_version: version } = readJson(code === 0 ? stdout : '{}') as { terraform_version?: unknown }
    return typeof version === 'string' && /^[\w.+-]{1,64}$/.test(version) ? version : null
  } catch {
    return null
  }
}

/** The installed tools with their versions; those that do not report theirs are left out. */
export const toolVersions = async (paths: ToolPaths): Promise<{ name: string; version: string }[]> => {
  const found = await Promise.all(
    Object.keys(described)
      .filter((name) => name !== 'helm')
      .map(async (name) => {
        const path = await findTool(name, paths)
        const version = path === null ? null : await askVersion(path)
        return version === null ? [] : [{ name, version }]
      }),
  )
  return found.flat()
}

export const createTools = (
  engine: Engine,
  paths: ToolPaths,
  note: (contentKey: string, reference: string) => Promise<void>,
) => {
  const known = new Map<string, string>()

  const read = async (path: string | null) =>
    [path === null ? null : await readFile(path), await readFile(script), await readIfThere(certificates)] as const

  const demand = async (name: string): Promise<string | null> => {
    if (name === scriptAlone) return null
    const path = await findTool(name, paths)
    if (path === null) throw new DeploymentError('tool_missing', missingSentence(name))
    return path
  }

  /** A program of 100 MB is read again only when it has changed. */
  const markOf = async (path: string): Promise<string> => {
    const { size, mtimeMs, ino } = await stat(path)
    return `${path} ${size} ${mtimeMs} ${ino}`
  }

  /** A key of the content. */
  const keyOf = async (name: string, path: string | null): Promise<string> => {
    const mark = path === null ? name : await markOf(path)
    const before = known.get(mark)
    if (before !== undefined) return before
    const hash = createHash('sha256').update(recipe('busybox')).update(name)
    for (const part of await read(path)) if (part !== null) hash.update(createHash('sha256').update(part).digest())
    const key = hash.digest('hex')
    known.set(mark, key)
    return key
  }

  const nameOf = (name: string, key: string): string => `slipway/tool-${name}:${key.slice(0, 16)}`

  return {
    /**
     * The name of the image around the current version of a tool, or around the script if the build's image contains
     * the tool; rejects with `tool_missing`.
     */
    async reference({ name, image }: Pick<ToolBuild, 'name' | 'image'>): Promise<string> {
      const what = image === undefined ? name : scriptAlone
      return nameOf(what, await keyOf(what, await demand(what)))
    },
    /** Id of the image of this name, made if the engine does not have it; null when it is not one of a current tool. */
    async ensure(image: string, base: () => Promise<string>): Promise<string | null> {
      const name = /^slipway\/tool-(\w+):/.exec(image)?.[1]
      if (name === undefined || (name !== scriptAlone && described[name] === undefined)) return null
      const held = await findImage(engine, image)
      if (held !== null) return held
      const path = await demand(name)
      const key = await keyOf(name, path)
      if (nameOf(name, key) !== image) return null
      const body = contextOf(await base(), name, ...(await read(path)))
      const query = { version: 1, t: image, rm: 1, forcerm: 1, nocache: 1 }
      await finish(await engine.stream('POST', '/build', { query, body, deadlineMs: 300_000 }))
      await note(key, image)
      return findImage(engine, image)
    },
  }
}
