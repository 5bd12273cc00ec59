/**
 * The Terraform modules that make clusters at cloud providers: one for each provider, configured by the operator in a
 * JSON file; and the parts shared with the modules of databases (database-modules.ts). Pure except for reading files:
 * checks such a file, and makes the inputs of a module.
 */

import { readFileSync } from 'node:fs'
import { readdir, readFile, stat } from 'node:fs/promises'
import { isAbsolute, join, relative } from 'node:path'
import { DeploymentError } from '../lib/errors.ts'
import { tryJson } from '../lib/foreign-text/read-json.ts'

export const moduleProviders = ['AWS', 'GCP', 'AZURE', 'SCW'] as const
export type ModuleProvider = (typeof moduleProviders)[number]

/** A field of the cluster or database, by its JSON pointer, or a value of the operator. */
type ModuleInput = string | { value: unknown }

interface ModuleOutputs {
  kubeconfig?: string
  host?: string
  ca?: string
  token?: string
}

/** The fields shared by all modules. */
export interface ToolModule {
  engine: 'terraform' | 'tofu'
  /** An image that contains the tool; without it the operator's program is used. */
  image?: string
  /** A folder on this server's machine, absolute; or an address that the tool fetches. */
  source: string
  /** For a module of a registry. */
  version?: string
  inputs: Readonly<Record<string, ModuleInput>>
  /** Names of the module's outputs, by their meaning here. */
  outputs: object
  timeoutMinutes: number
}

export interface ClusterModule extends ToolModule {
  outputs: ModuleOutputs
  /** Versions of Kubernetes, the oldest first. Empty: the module does not upgrade. */
  versions: readonly string[]
}

export type ClusterModules = Readonly<Partial<Record<ModuleProvider, ClusterModule>>>

const isFolder = ({ source }: Pick<ToolModule, 'source'>): boolean => isAbsolute(source)

export type Fields = Record<string, unknown>

export const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export const outputName = /^[A-Za-z_][\w-]{0,99}$/
// An address must not contain the beginning of a template of the tool.
const address = /^(?!.*[$%]\{)[!-~]{1,1000}$/
const versionText = /^[\w.+-]{1,64}$/
const pointer = /^(\/[^/]{1,200}){0,10}$/
const longestMinutes = 24 * 60

const isInput = (value: unknown): boolean =>
  typeof value === 'string' ? pointer.test(value) : isFields(value) && Object.keys(value).join() === 'value'

/** Requirements of each field, as the end of a sentence; those of a module are checked in this order. */
export type Rules = Readonly<Record<string, { must: string; isGood(value: unknown): boolean; needed?: true }>>

/** For every module. */
export const toolRules: Rules = {
  engine: { must: '"terraform" or "tofu"', isGood: (value) => value === 'terraform' || value === 'tofu' },
  image: {
    must: 'the name of an image, such as "hashicorp/terraform:1.11.4"',
    isGood: (value) => typeof value === 'string' && /^[a-z0-9][\w./:@-]{0,300}$/.test(value),
  },
  source: {
    must: 'the absolute path of a folder, or the address of a module',
    isGood: (value) => typeof value === 'string' && address.test(value) && !/^\.\.?(\/|$)/.test(value),
    needed: true,
  },
  version: { must: 'a version', isGood: (value) => typeof value === 'string' && versionText.test(value) },
  inputs: {
    must: 'an object of input names, each with a JSON pointer such as "/region", or {"value": …}',
    isGood: (value) =>
      isFields(value) && Object.entries(value).every(([key, each]) => outputName.test(key) && isInput(each)),
  },
  timeout_minutes: {
    must: `a whole number from 1 to ${longestMinutes}`,
    isGood: (value) => Number.isInteger(value) && Number(value) >= 1 && Number(value) <= longestMinutes,
  },
}

const rules: Rules = {
  ...toolRules,
  outputs: {
    must: 'an object with "kubeconfig", or with "host" and "token" and perhaps "ca": each the name of an output',
    isGood: (value) =>
      isFields(value) &&
      Object.entries(value).every(
        ([key, each]) => ['kubeconfig', 'host', 'ca', 'token'].includes(key) && outputName.test(String(each)),
      ) &&
      (value.kubeconfig !== undefined) !== (value.host !== undefined && value.token !== undefined),
    needed: true,
  },
  versions: {
    must: 'a list of up to 50 versions of Kubernetes, the oldest first',
    isGood: (value) =>
      Array.isArray(value) &&
      value.length <= 50 &&
      value.every((each) => versionText.test(String(each))) &&
      new Set(value).size === value.length,
  },
}

/** The error in a module; null if there is none. Pure. */
export const wrongIn = (fields: Fields, rules: Rules): string | null => {
  const unknown = Object.keys(fields).find((key) => rules[key] === undefined)
  if (unknown !== undefined) return `has an unknown field "${unknown.slice(0, 100)}"`
  for (const [key, { must, isGood, needed }] of Object.entries(rules)) {
    const value = fields[key]
    if (value === undefined ? needed === true : !isGood(value)) return `needs as "${key}" ${must}`
  }
  if (fields.version !== undefined && isAbsolute(String(fields.source)))
    return 'must not have a version: it is a folder'
  return null
}

/** The shared fields of a module that fulfills `toolRules`. Pure. */
export const toolModuleOf = (fields: Fields): ToolModule => ({
  engine: (fields.engine ?? 'terraform') as ToolModule['engine'],
  ...(fields.image === undefined ? {} : { image: String(fields.image) }),
  source: String(fields.source),
  ...(fields.version === undefined ? {} : { version: String(fields.version) }),
  inputs: (fields.inputs ?? {}) as ToolModule['inputs'],
  outputs: fields.outputs as object,
  timeoutMinutes: Number(fields.timeout_minutes ?? 60),
})

const moduleOf = (fields: Fields): ClusterModule => ({
  ...toolModuleOf(fields),
  outputs: fields.outputs as ModuleOutputs,
  versions: ((fields.versions ?? []) as unknown[]).map(String),
})

/** Pure. The modules in a file's text, or what the file must be, as the end of a sentence. */
export const parseClusterModules = (text: string): ClusterModules | string => {
  const found = tryJson(text)
  if (!isFields(found)) return 'the path of a JSON file with an object'
  const modules: Partial<Record<ModuleProvider, ClusterModule>> = {}
  for (const [key, fields] of Object.entries(found)) {
    const provider = moduleProviders.find((each) => each === key)
    if (provider === undefined)
      return `a file whose names are ${moduleProviders.join(', ')}: "${key.slice(0, 100)}" is none of them`
    const wrong = isFields(fields) ? wrongIn(fields, rules) : 'must be an object'
    if (wrong !== null) return `a file of modules: that of ${provider} ${wrong}`
    modules[provider] = Object.freeze(moduleOf(fields as Fields))
  }
  return Object.freeze(modules)
}

const longestFile = 1_048_576

/** For the settings: the modules in the file at a path, or what it must be. */
export const modulesAt = <Modules>(
  path: string,
  parse: (text: string) => Modules | string,
): { value: Modules } | string => {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch {
    return 'the path of a readable JSON file'
  }
  const parsed = text.length > longestFile ? 'a file of at most 1 MiB' : parse(text)
  return typeof parsed === 'string' ? parsed : { value: parsed }
}

export const clusterModulesAt = (path: string): { value: ClusterModules } | string =>
  modulesAt(path, parseClusterModules)

/** The module for clusters with such a configuration; null if there is none. */
export const moduleOfCluster = (
  modules: ClusterModules | undefined,
  { cloud_provider: provider, kubernetes }: Readonly<Record<string, unknown>>,
): ClusterModule | null => (kubernetes === 'MANAGED' ? (modules?.[String(provider) as ModuleProvider] ?? null) : null)

const stepInto = (value: unknown, part: string): unknown => {
  const key = part.replaceAll('~1', '/').replaceAll('~0', '~')
  return typeof value === 'object' && value !== null && Object.hasOwn(value, key) ? (value as Fields)[key] : undefined
}

const valueAt = (document: unknown, path: string): unknown =>
  path === '' ? document : path.slice(1).split('/').reduce(stepInto, document)

/** The inputs of a module for a cluster or database; an unset field keeps the module's default. Pure. */
export const inputsFor = ({ inputs }: Pick<ToolModule, 'inputs'>, document: object): Fields => {
  const given = Object.entries(inputs).map(([key, input]) => [
    key,
    typeof input === 'string' ? valueAt(document, input) : input.value,
  ])
  return Object.fromEntries(given.filter(([, value]) => value !== undefined && value !== null))
}

/** Whether a module gets all of a field, or some of it. Pure. */
export const readsField = ({ inputs }: Pick<ToolModule, 'inputs'>, field: string): 'all' | 'some' | 'nothing' => {
  const pointers = Object.values(inputs).filter((input) => typeof input === 'string')
  if (pointers.some((each) => each === field || field.startsWith(`${each}/`))) return 'all'
  return pointers.some((each) => each.startsWith(`${field}/`)) ? 'some' : 'nothing'
}

interface ModuleFile {
  path: string
  content: string
}

const mostFiles = 200
const mostBytes = 1_048_576
const left = /^(\.terraform|\.git|.*\.tfstate(\..*)?)$/

const refuse = (why: string): DeploymentError =>
  new DeploymentError('module_refused', `The folder of the module cannot be used: ${why}.`)

const readFolder = async (folder: string): Promise<ModuleFile[]> => {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => {
    throw refuse('it cannot be read')
  })
  const files: ModuleFile[] = []
  let bytes = 0
  for (const entry of entries) {
    const at = join(entry.parentPath, entry.name)
    const path = relative(folder, at)
    if (path.split('/').some((part) => left.test(part)) || entry.isDirectory()) continue
    if (!entry.isFile()) throw refuse(`${path} is not a file`)
    bytes += (await stat(at)).size
    if (files.length === mostFiles || bytes > mostBytes)
      throw refuse(`it has more than ${mostFiles} files, or more than 1 MiB`)
    files.push({ path: `/module/${path}`, content: await readFile(at, 'utf8') })
  }
  return files
}

/** A module that wraps one that the tool fetches. */
const around = ({ source, version, outputs }: ToolModule, names: readonly string[]): ModuleFile => {
  const given = Object.fromEntries(names.map((each) => [each, `\${var.${each}}`]))
  const told = Object.values(outputs).map((each: string) => [
    each,
    { value: `\${module.cluster.${each}}`, sensitive: true },
  ])
  const content = {
    variable: Object.fromEntries(names.map((each) => [each, {}])),
    module: { cluster: { source, ...(version === undefined ? {} : { version }), ...given } },
    output: Object.fromEntries(told),
  }
  return { path: '/module/main.tf.json', content: JSON.stringify(content) }
}

/** The files that the tool runs on, for these inputs. Rejects with `module_refused`. */
export const filesOf = async (module: ToolModule, inputs: object): Promise<ModuleFile[]> =>
  isFolder(module) ? readFolder(module.source) : [around(module, Object.keys(inputs))]
