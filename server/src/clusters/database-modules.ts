/**
 * The Terraform modules that make databases in MANAGED mode: one for each provider and type, configured by the
 * operator in a JSON file. Pure except for reading that file.
 */
import { tryJson } from '../lib/foreign-text/read-json.ts'
import {
  type Fields,
  isFields,
  moduleProviders,
  modulesAt,
  outputName,
  type Rules,
  type ToolModule,
  toolModuleOf,
  toolRules,
  wrongIn,
} from './modules.ts'

export const databaseModulesSetting = 'SLIPWAY_DATABASE_MODULES'

/** Those of clusters, by their `cloud_provider`; ON_PREMISE has no login. */
const providers = [...moduleProviders, 'ON_PREMISE'] as const
const types = ['POSTGRESQL', 'MYSQL', 'MONGODB', 'REDIS'] as const

/** The outputs of a module about its database. A missing one has the default of the type. */
const databaseOutputs = ['host', 'port', 'login', 'password', 'database'] as const
type DatabaseOutput = (typeof databaseOutputs)[number]

export interface DatabaseModule extends ToolModule {
  outputs: Readonly<Partial<Record<DatabaseOutput, string>> & { host: string; password: string }>
  /** Versions of the database, the oldest first. Empty: those that this server knows for the type. */
  versions: readonly string[]
  /** The only ones that can be requested. Empty: any. */
  instanceTypes: readonly string[]
}

export type DatabaseModules = Readonly<Record<string, Readonly<Record<string, DatabaseModule>>>>

/** The version of a database in the API: digits and dots. */
const databaseVersion = /^\d{1,4}(\.\d{1,4}){0,2}$/
export const instanceTypeText = /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/

const isListOf = (value: unknown, each: RegExp): boolean =>
  Array.isArray(value) &&
  value.length <= 50 &&
  value.every((one) => typeof one === 'string' && each.test(one)) &&
  new Set(value).size === value.length

const rules: Rules = {
  ...toolRules,
  outputs: {
    must: 'an object with "host" and "password", and perhaps "port", "login" and "database": each the name of an output',
    isGood: (value) =>
      isFields(value) &&
      Object.entries(value).every(
        ([key, each]) => databaseOutputs.some((one) => one === key) && outputName.test(String(each)),
      ) &&
      value.host !== undefined &&
      value.password !== undefined,
    needed: true,
  },
  versions: {
    must: 'a list of up to 50 versions of the database, the oldest first',
    isGood: (value) => isListOf(value, databaseVersion),
  },
  instance_types: {
    must: 'a list of up to 50 instance types',
    isGood: (value) => isListOf(value, instanceTypeText),
  },
}

const moduleOf = (fields: Fields): DatabaseModule =>
  Object.freeze({
    ...toolModuleOf(fields),
    outputs: fields.outputs as DatabaseModule['outputs'],
    versions: (fields.versions ?? []) as string[],
    instanceTypes: (fields.instance_types ?? []) as string[],
  })

const namesOf = (provider: string, fields: Fields): Readonly<Record<string, DatabaseModule>> | string => {
  const modules: Record<string, DatabaseModule> = {}
  for (const [type, one] of Object.entries(fields)) {
    if (!types.some((each) => each === type))
      return `a file whose modules are of ${types.join(', ')}: "${type.slice(0, 100)}" of ${provider} is none of them`
    const wrong = isFields(one) ? wrongIn(one, rules) : 'must be an object'
    if (wrong !== null) return `a file of modules: that of ${provider} for ${type} ${wrong}`
    modules[type] = moduleOf(one as Fields)
  }
  return Object.freeze(modules)
}

/** Pure. The modules in a file's text, or what the file must be, as the end of a sentence. */
export const parseDatabaseModules = (text: string): DatabaseModules | string => {
  const found = tryJson(text)
  if (!isFields(found)) return 'the path of a JSON file with an object'
  const modules: Record<string, DatabaseModules[string]> = {}
  for (const [provider, fields] of Object.entries(found)) {
    if (!providers.some((each) => each === provider))
      return `a file whose names are ${providers.join(', ')}: "${provider.slice(0, 100)}" is none of them`
    const named = isFields(fields) ? namesOf(provider, fields) : `a file with an object for ${provider}`
    if (typeof named === 'string') return named
    modules[provider] = named
  }
  return Object.freeze(modules)
}

export const databaseModulesAt = (path: string): { value: DatabaseModules } | string =>
  modulesAt(path, parseDatabaseModules)

/** The module for a database; null if there is none. */
export const databaseModuleOf = (
  modules: DatabaseModules | undefined,
  provider: string,
  type: string,
): DatabaseModule | null => {
  const named = modules !== undefined && Object.hasOwn(modules, provider) ? modules[provider]! : {}
  return Object.hasOwn(named, type) ? named[type]! : null
}

/** The refusal of a database in MANAGED mode without a module. */
export const noDatabaseModule = (provider: string, type: string): string =>
  `MANAGED needs a Terraform module for ${type} on clusters of ${provider}, which this server does not have: its operator can name one in ${databaseModulesSetting}. Until then, use CONTAINER.`
