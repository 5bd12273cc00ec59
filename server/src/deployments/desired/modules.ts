/** Services that a module of the operator makes: what their version is called, and why one cannot be made or stopped. */
import {
  type DatabaseModules,
  databaseModuleOf,
  databaseModulesSetting,
  noDatabaseModule,
} from '../../clusters/database-modules.ts'
import { readsField } from '../../clusters/modules.ts'
import type { Source } from '../deployments.ts'

export type ModuleSource = Extract<Source, { from: 'module' }>

/** The name of a release's version. */
export const moduleName = ({ provider, type }: ModuleSource): string => `module ${provider} ${type}`

/** Why a deploy is impossible: the operator has no such module; null if there is one. */
export const moduleRefusal = (modules: DatabaseModules | undefined, { provider, type }: ModuleSource): string | null =>
  databaseModuleOf(modules, provider, type) === null ? noDatabaseModule(provider, type) : null

/** Why what a module makes cannot be stopped; null when it can. */
export const moduleStopRefusal = (modules: DatabaseModules | undefined, source: ModuleSource): string | null => {
  const module = databaseModuleOf(modules, source.provider, source.type)
  if (module === null) return noDatabaseModule(source.provider, source.type)
  return readsField(module, '/stopped') === 'nothing'
    ? `The module of this database has no input for \`/stopped\` in ${databaseModulesSetting}: it cannot be stopped.`
    : null
}
