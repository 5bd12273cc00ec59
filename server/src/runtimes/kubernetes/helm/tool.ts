/**
 * The operator's helm, run in a folder of its own that is removed with the run. It gets nothing of this server's
 * environment, no plugins, and no network except to the API server of the kubeconfig: it downloads nothing.
 */
import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { DeploymentError } from '../../../lib/errors.ts'
import { type ExecResult, ExecTimeout, exec, isProgram } from '../../../lib/exec.ts'
import { tellingLine } from '../../../lib/last-words.ts'

interface HelmRun {
  timeoutMs: number
  signal?: AbortSignal
  /** Limit of its output. Default 1 Mi characters. */
  maxOutput?: number
  onOutput?: (text: string) => void
}

/** One piece of work with helm: its files and its runs. */
export interface HelmSession {
  /** Whether it is helm 4 or later. */
  isFourth: boolean
  /** Writes a file that only this server can read; returns its path. */
  write(name: string, content: string | Buffer): Promise<string>
  /** Rejects with `helm_failed` and helm's message. */
  run(args: readonly string[], run: HelmRun): Promise<string>
}

export interface HelmTool {
  /** `v3.20.2`; null: it is not installed. */
  version(): Promise<string | null>
  /** Rejects with `tool_missing` without helm. */
  use<T>(work: (session: HelmSession) => Promise<T>): Promise<T>
}

const helmMissing = 'Helm is not installed on this server: install `helm` (3 or 4) or set SLIPWAY_HELM.'

const versionMs = 10_000
/** For a process: the templates of a chart can use it up. */
const mostMemory = 4 * 2 ** 30
const leftAfterMs = 24 * 3_600_000
const limiter = '/usr/bin/prlimit'

const sweep = async (root: string): Promise<void> => {
  for (const name of await readdir(root).catch(() => [])) {
    const path = join(root, name)
    const found = await stat(path).catch(() => null)
    if (found !== null && Date.now() - found.mtimeMs > leftAfterMs) await rm(path, { recursive: true, force: true })
  }
}

const environmentIn = (folder: string): Record<string, string> => ({
  PATH: '/usr/bin:/bin',
  HOME: folder,
  TMPDIR: folder,
  KUBECONFIG: join(folder, 'kubeconfig'),
  HELM_CACHE_HOME: join(folder, 'cache'),
  HELM_CONFIG_HOME: join(folder, 'config'),
  HELM_DATA_HOME: join(folder, 'data'),
  HELM_PLUGINS: join(folder, 'plugins'),
  HELM_NO_PLUGINS: '1',
  HELM_DRIVER: 'secret',
  GOMEMLIMIT: '512MiB',
})

/** Older ones cannot skip schemas of values, which may name any address. */
const isTooOld = (version: string): boolean => {
  const [major = 0, minor = 0] = version.slice(1).split('.').map(Number)
  return major < 3 || (major === 3 && minor < 16)
}

const sentenceOf = ({ stderr, stdout }: ExecResult): string => {
  const said = tellingLine((stderr.trim() || stdout).split('\n'))
  return said === null ? 'Helm failed and said nothing.' : `Helm failed: ${said}`
}

/** `find`: the path of helm, looked up anew each time. `root`: the parent folder of runs. */
export const createHelmTool = (find: () => Promise<string | null>, root: string): HelmTool => {
  const start = async (program: string, args: readonly string[], folder: string, run: HelmRun): Promise<ExecResult> => {
    const isLimited = await isProgram(limiter)
    const words = isLimited ? [`--as=${mostMemory}`, '--', program, ...args] : args
    const { onOutput, ...options } = run
    return exec(isLimited ? limiter : program, words, {
      ...options,
      ...{ env: environmentIn(folder), cwd: folder },
      ...(onOutput === undefined ? {} : { onOutput: (chunk: string) => onOutput(chunk) }),
    })
  }

  const versionOf = async (program: string): Promise<string> => {
    const { stdout } = await start(program, ['version', '--template', '{{.Version}}'], '/', { timeoutMs: versionMs })
    const [version] = /^v\d+\.\d+[\w.+-]{0,40}/.exec(stdout) ?? []
    if (version === undefined) throw new DeploymentError('tool_missing', `${program} is not helm 3 or 4.`)
    if (isTooOld(version))
      throw new DeploymentError(
        'tool_missing',
        `${program} is helm ${version}, which is too old: install 3.16 or later.`,
      )
    return version
  }

  return {
    async version() {
      const program = await find()
      return program === null ? null : versionOf(program)
    },
    async use(work) {
      const program = await find()
      if (program === null) throw new DeploymentError('tool_missing', helmMissing)
      const isFourth = Number(/^v(\d+)/.exec(await versionOf(program))?.[1]) >= 4
      await mkdir(root, { recursive: true, mode: 0o700 })
      await sweep(root)
      const folder = await mkdtemp(join(root, 'run-'))
      try {
        return await work({
          isFourth,
          async write(name, content) {
            const path = join(folder, name)
            await mkdir(dirname(path), { recursive: true, mode: 0o700 })
            await writeFile(path, content, { mode: 0o600 })
            return path
          },
          async run(args, run) {
            const result = await start(program, args, folder, run).catch((error: unknown) => {
              if (!(error instanceof ExecTimeout)) throw error
              throw new DeploymentError(
                'helm_failed',
                `Helm did not finish within ${Math.round(run.timeoutMs / 1000)} s.`,
              )
            })
            if (result.code !== 0) throw new DeploymentError('helm_failed', sentenceOf(result))
            return result.stdout
          },
        })
      } finally {
        await rm(folder, { recursive: true, force: true })
      }
    },
  }
}
