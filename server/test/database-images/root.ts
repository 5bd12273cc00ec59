/** The file tree of a database image: unpacked packages, busybox for the small programs, one unprivileged user. */
import { chmod, glob, mkdir, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fetchPackages, run } from './packages.ts'

export interface Software {
  /** Whom the server runs as, with the home folder it owns. */
  user: string
  home: string
  packages: string[]
  /** Folders whose programs are linked into the path. */
  links: string[]
  /** What is not needed of the packages. Patterns, like those of `links`. */
  without: string[]
}

const basics = ['busybox-static', 'dash', 'util-linux', 'libc-bin']
const neverNeeded = ['usr/share/{doc,doc-base,info,locale,man,lintian,bug,bash-completion,menu}', 'etc/apparmor.d']
const userId = 999

/** Debian's /bin, /sbin and /lib are links into /usr, but packages may hold files under the old names. */
const mergeIntoUsr = async (root: string): Promise<void> => {
  for await (const name of glob('{bin,sbin,lib,lib32,lib64,libx32}', { cwd: root })) {
    await mkdir(join(root, 'usr', name), { recursive: true })
    await run('cp', ['-a', '-T', join(root, name), join(root, 'usr', name)])
    await rm(join(root, name), { recursive: true })
  }
  for (const name of ['bin', 'sbin', 'lib', 'lib64']) {
    await mkdir(join(root, 'usr', name), { recursive: true })
    await symlink(`usr/${name}`, join(root, name))
  }
}

/** Links names to targets in /usr/bin, except where a file of that name is. */
const linkPrograms = async (root: string, targets: [name: string, target: string][]): Promise<void> => {
  const there = new Set([...(await readdir(join(root, 'usr/bin'))), ...(await readdir(join(root, 'usr/sbin')))])
  for (const [name, target] of targets) if (!there.has(name)) await symlink(target, join(root, 'usr/bin', name))
}

const linkAll = async (root: string, links: string[]): Promise<void> => {
  for await (const directory of glob(links, { cwd: root })) {
    const names = await readdir(join(root, directory))
    await linkPrograms(
      root,
      names.map((name) => [name, `/${directory}/${name}`]),
    )
  }
  const applets = (await run(join(root, 'usr/bin/busybox'), ['--list'])).trim().split('\n')
  await linkPrograms(
    root,
    applets.map((name) => [name, 'busybox']),
  )
}

const addUser = async (root: string, { user, home }: Software): Promise<void> => {
  const lines = ['root:x:0:0:root:/root:/bin/sh', `${user}:x:${userId}:${userId}::/${home}:/bin/sh`]
  await writeFile(join(root, 'etc/passwd'), `${lines.join('\n')}\n`)
  await writeFile(join(root, 'etc/group'), `root:x:0:\n${user}:x:${userId}:\n`)
  await writeFile(join(root, 'etc/nsswitch.conf'), 'passwd: files\ngroup: files\nhosts: files dns\n')
}

const addFolders = async (root: string, home: string): Promise<void> => {
  for (const name of ['etc', 'root', 'run', 'var', 'proc', 'sys', 'dev', home, 'usr/local/bin'])
    await mkdir(join(root, name), { recursive: true })
  for (const name of ['tmp', 'var/tmp']) {
    await mkdir(join(root, name), { recursive: true })
    await chmod(join(root, name), 0o1777)
  }
  await rm(join(root, 'var/run'), { recursive: true, force: true })
  await symlink('/run', join(root, 'var/run'))
  await symlink('/usr/share/zoneinfo/Etc/UTC', join(root, 'etc/localtime'))
}

export const fillRoot = async (root: string, software: Software, entrypoint: string): Promise<void> => {
  await mkdir(root, { recursive: true })
  for (const file of await fetchPackages([...basics, ...software.packages])) await run('dpkg-deb', ['-x', file, root])
  await mergeIntoUsr(root)
  for await (const path of glob([...neverNeeded, ...software.without], { cwd: root }))
    await rm(join(root, path), { recursive: true, force: true })
  await addFolders(root, software.home)
  await linkAll(root, software.links)
  await addUser(root, software)
  const target = join(root, 'usr/local/bin/docker-entrypoint.sh')
  await writeFile(target, entrypoint)
  await chmod(target, 0o755)
}
