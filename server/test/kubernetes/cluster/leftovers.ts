/** What a node leaves when it ended: its folder and its empty cgroups. All else went with its namespaces. */
import { existsSync, readdirSync, readFileSync, rmdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'

const cgroups = '/sys/fs/cgroup'

const childrenOf = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true })
    .filter((each) => each.isDirectory())
    .map(({ name }) => join(folder, name))

/** Whether nothing is left of it: a group whose last process is just ending cannot be removed yet. */
const removeGroup = (folder: string): boolean => {
  try {
    for (const child of childrenOf(folder)) removeGroup(child)
    rmdirSync(folder)
    return true
  } catch {
    return !existsSync(folder)
  }
}

/** Whether the cgroups of the node of that name are gone. */
export const removeGroups = (name: string): boolean =>
  [cgroups, ...childrenOf(cgroups)]
    .map((parent) => join(parent, name))
    .filter((folder) => existsSync(folder))
    .every(removeGroup)

const isAlive = (folder: string): boolean => {
  try {
    const pid = readFileSync(join(folder, 'pid'), 'utf8')
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(folder)
  } catch {
    return false
  }
}

/** What nodes left whose runner was killed. */
export const removeLeftovers = (nodes: string): void => {
  if (!existsSync(nodes)) return
  for (const folder of childrenOf(nodes).filter((each) => !isAlive(each))) {
    removeGroups(folder.slice(nodes.length + 1))
    rmSync(folder, { recursive: true, force: true })
  }
}
