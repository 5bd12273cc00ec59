/** Debian packages as files: which ones a program needs on an empty machine, kept in a folder between runs. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { exec } from '../../src/lib/exec.ts'

export const cacheFolder = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'slipway-test')
const archives = join(cacheFolder, 'packages')

/** What only installation or administration needs, and the libraries of left out parts. */
const leftOut = [
  /^(perl|libperl|libdb5|libgdbm)/,
  /-perl$/,
  /^(dpkg|tar|passwd|adduser|debconf|ucf|usrmerge|debianutils|init-system-helpers|sysvinit-utils|lsb-base|netbase)$/,
  /^(openssl|ssl-cert|sensible-utils|locales|libc-l10n|gcc-\d+-base|lib(audit|semanage)-common|libsemanage\d)$/,
  /^(mysql-common|mariadb-common|util-linux-extra|readline-common)$/,
  /^postgresql(-common|-client-common)?$/,
  /^lib(llvm|z3)/,
]

const env = {
  PATH: process.env.PATH || '/usr/sbin:/usr/bin:/sbin:/bin',
  DEBIAN_FRONTEND: 'noninteractive',
  LC_ALL: 'C',
}

export const run = async (file: string, args: readonly string[], cwd?: string): Promise<string> => {
  const { code, stdout, stderr } = await exec(file, args, { env, cwd, timeoutMs: 300_000 }).catch((cause: Error) => {
    throw new Error(`${file} cannot be run (database images for tests need Debian's tools): ${cause.message}`, {
      cause,
    })
  })
  if (code !== 0) throw new Error(`${file} ${args[0]} failed: ${stderr.trim()}`)
  return stdout
}

/** Runs the work while no other process holds the lock. The kernel frees it when this process ends, however it ends. */
export const withLock = async <T>(name: string, work: () => Promise<T>): Promise<T> => {
  await mkdir(cacheFolder, { recursive: true })
  // `cat` runs once the lock is held, echoes the word, and ends with its input: at the latest when this process does.
  const holder = spawn('flock', [join(cacheFolder, `${name}.lock`), 'cat'], { stdio: ['pipe', 'pipe', 'inherit'] })
  await once(holder, 'spawn')
  try {
    holder.stdin.write('held\n')
    await once(holder.stdout, 'data')
    return await work()
  } finally {
    holder.stdin.end()
  }
}

/** `name=version` of each package that the named ones need where none is installed. */
const resolve = async (names: readonly string[]): Promise<string[]> => {
  const empty = join(cacheFolder, 'empty-status')
  await writeFile(empty, '')
  const options = [`Dir::State::status=${empty}`, `Dir::Cache=${cacheFolder}/apt/`, 'APT::Install-Recommends=false']
  await mkdir(join(cacheFolder, 'apt', 'archives', 'partial'), { recursive: true })
  const plan = await run('apt-get', ['install', '--simulate', ...options.flatMap((option) => ['-o', option]), ...names])
  return [...plan.matchAll(/^Inst (\S+) \((\S+) /gm)]
    .filter(([, name]) => !leftOut.some((pattern) => pattern.test(name!)))
    .map(([, name, version]) => `${name}=${version}`)
}

/** The file that `apt-get download` makes of `name=version`, without its architecture. */
const fileStem = (wanted: string): string => {
  const [name, version] = wanted.split('=') as [string, string]
  return `${name.split(':')[0]}_${version.replaceAll(':', '%3a')}_`
}

/** Whole files only: they move to the cache once all are there. */
const downloadMissing = async (missing: string[]): Promise<void> => {
  const draft = await mkdtemp(join(cacheFolder, 'download-'))
  try {
    await run('apt-get', ['download', '-o', 'APT::Sandbox::User=root', ...missing], draft)
    for (const file of await readdir(draft)) await rename(join(draft, file), join(archives, file))
  } finally {
    await rm(draft, { recursive: true, force: true })
  }
}

const download = async (names: readonly string[]): Promise<string[]> => {
  const wanted = await resolve(names)
  await mkdir(archives, { recursive: true })
  const fileOf = (files: string[], each: string) => files.find((file) => file.startsWith(fileStem(each)))
  const there = await readdir(archives)
  const missing = wanted.filter((each) => fileOf(there, each) === undefined)
  if (missing.length > 0) await downloadMissing(missing)
  const files = await readdir(archives)
  return wanted.map((each) => join(archives, fileOf(files, each)!))
}

/** Files of the packages and of all they need. Package lists may be absent or old: a second try fetches them. */
export const fetchPackages = (names: readonly string[]): Promise<string[]> =>
  withLock('packages', async () => {
    try {
      return await download(names)
    } catch {
      await run('apt-get', ['update'])
      return await download(names)
    }
  })
