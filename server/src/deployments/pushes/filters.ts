/** Whether what was pushed concerns a service: words in the message, and which paths have changed. Pure. */

/** As git hosts and their pipelines know them, whatever their case. */
const skipWords = /\[(?:skip ci|ci skip|no ci|skip deploy|deploy skip)\]/i

/** The words in a commit's message that ask for no deployment; null without. */
export const skipWordIn = (message: string): string | null => skipWords.exec(message)?.[0] ?? null

export interface Filters {
  /** The folder that the service is built from, without slashes at its ends; '' for the whole repository. */
  root: string
  /** Beginnings of paths: some changed path must have one of them. */
  match: readonly string[]
  /** Changes below these alone do not count. */
  exclude: readonly string[]
}

interface Kept {
  mode?: unknown
  value?: unknown
}

export const filtersIn = (spec: Readonly<Record<string, unknown>>, rootPath: string): Filters => {
  const kept = Array.isArray(spec.deployment_restrictions) ? (spec.deployment_restrictions as Kept[]) : []
  const of = (mode: string) => kept.flatMap((each) => (each.mode === mode ? [String(each.value)] : []))
  return { root: rootPath.replace(/^\/+|\/+$/g, ''), match: of('MATCH'), exclude: of('EXCLUDE') }
}

/** Whether it makes a difference which paths have changed. */
export const hasFilters = ({ root, match, exclude }: Filters): boolean =>
  root !== '' || match.length > 0 || exclude.length > 0

const beginsWithAny = (path: string, beginnings: readonly string[]): boolean =>
  beginnings.some((beginning) => path.startsWith(beginning))

/**
 * Why these changes do not concern a service; null if they do, or if nobody knows them. A service is built from its
 * root path alone, so that changes elsewhere concern it only if a restriction says so.
 */
export const refusalOf = ({ root, match, exclude }: Filters, changes: readonly string[] | null): string | null => {
  if (changes === null) return null
  const left = changes.filter((path) => !beginsWithAny(path, exclude))
  if (exclude.length > 0 && left.length === 0)
    return 'All changes are below paths that a deployment restriction excludes.'
  if (match.length > 0)
    return left.some((path) => beginsWithAny(path, match)) ? null : 'No changed path matches a deployment restriction.'
  // A commit without changes is a way to ask for a deployment.
  if (root === '' || changes.length === 0) return null
  return left.some((path) => path === root || path.startsWith(`${root}/`))
    ? null
    : `Nothing below /${root} has changed.`
}
