/**
 * What is to be known of a test file before it runs: what it needs of the machine, and what it may run beside.
 *
 *   bin/test-plan.ts files             prints the files of a whole run, one a line
 *   bin/test-plan.ts needs FILE …      prints what these need, a word a line: `ready_for_test` in bin/ready.sh knows each
 */
import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const support = 'server/test/'
/** Starts a server; whether on an engine, the test says by what else it imports. */
const serverOfTests = 'server/test/support/slipway/slipway.ts'

const texts = new Map<string, string>()
const textOf = (path: string): string => {
  const text = texts.get(path) ?? readFileSync(join(root, path), 'utf8')
  texts.set(path, text)
  return text
}

const importsOf = (path: string): string[] =>
  [...textOf(path).matchAll(/\b(?:from|import)\s*\(?\s*'(\.[^']+\.ts)'/g)]
    .map(([, to]) => normalize(join(dirname(path), to!)))
    .filter((to) => to.startsWith(support) && existsSync(join(root, to)))

/** The file, and what it has of `server/test` directly or through others. */
const reachedFrom = (path: string): string[] => {
  const reached = new Set([path])
  for (const each of reached) if (each !== serverOfTests) for (const to of importsOf(each)) reached.add(to)
  return [...reached]
}

/** A program is needed by who names its path. */
const needs: [word: string, pattern: RegExp][] = [
  ['git', /\w\(\s*'git'|\/git-server\.ts'/],
  ['docker', /docker-engine\.ts'[\s\S]*\bcreateEngine\((?:defaultConnection\(.*\))?\)/],
  ['server', /slipway\/slipway\.ts'/],
  ['docker-registry', /'\/usr\/bin\/docker-registry'/],
  ['sshd', /'\/usr\/sbin\/sshd'/],
  ['pebble', /'\/usr\/bin\/pebble'/],
  ['named', /'\/usr\/sbin\/named'/],
  ['nginx', /'\/usr\/sbin\/nginx'/],
  ['haproxy', /'\/usr\/sbin\/haproxy'/],
  ['chromium', /'\/usr\/bin\/chromium'/],
  ['mkfs.xfs', /'mkfs\.xfs'/],
]

/** The words of what a file needs. A server needs git. */
export const needsOf = (path: string): string[] => {
  const reached = reachedFrom(path).map(textOf)
  const found = needs.filter(([, pattern]) => reached.some((text) => pattern.test(text))).map(([word]) => word)
  return found.includes('server') && !found.includes('git') ? ['git', ...found] : found
}

/**
 * `quick` files keep a processor busy; `heavy` ones mostly wait for an engine, for whole servers or for a browser; `alone`
 * are those that measure or take what the machine has.
 */
export type Lane = 'quick' | 'heavy' | 'alone'

const starts = /ensureBusybox|prepareSlipway|ensureDatabaseImage|openBuildScene|startImages/

export const laneOf = (path: string): Lane => {
  const text = textOf(path)
  if (/^\/\/ Runs alone/m.test(text)) return 'alone'
  return path.endsWith('.e2e.test.ts') || starts.test(text) ? 'heavy' : 'quick'
}

/** A file that only the run of each night has. */
export const isNightly = (path: string): boolean => /^\/\/ Runs each night/m.test(textOf(path))

/** All but those that need a Kubernetes cluster, which bin/test-kubernetes runs. */
export const allTestFiles = (): string[] =>
  globSync('server/{src,test}/**/*.test.ts', { cwd: root })
    .filter((path) => !path.startsWith('server/test/kubernetes/'))
    .sort()

if (import.meta.main) {
  const [asked, ...given] = process.argv.slice(2)
  const isNight = process.env.SLIPWAY_TEST_ALL === '1'
  const paths = given.map((path) => normalize(path))
  const words = new Set(paths.flatMap(needsOf))
  const lines =
    asked === 'files'
      ? allTestFiles().filter((path) => isNight || !isNightly(path))
      : needs.map(([word]) => word).filter((word) => words.has(word))
  process.stdout.write(lines.map((line) => `${line}\n`).join(''))
}
