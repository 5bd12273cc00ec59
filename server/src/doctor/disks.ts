/** Free space and free inodes of the disks that this server and its engine write to. */
import { stat, statfs } from 'node:fs/promises'
import { failed, listed, type Problem, topic, warning } from '../lib/finding.ts'

export interface Place {
  name: string
  path: string
}

export interface DiskFacts {
  /** The places on this disk. */
  names: string[]
  path: string
  freeBytes: number
  freeInodes: number
  /** 0: the file system makes inodes as it needs them. */
  inodes: number
}

/** As `statfs` of Node returns it. */
interface Room {
  bavail: number
  bsize: number
  files: number
  ffree: number
}

export interface DiskReader {
  roomOf(path: string): Promise<Room>
  /** Which disk a path is on. */
  diskOf(path: string): Promise<number>
}

const systemReader: DiskReader = {
  roomOf: (path) => statfs(path),
  diskOf: async (path) => (await stat(path)).dev,
}

/** Each disk once, with the names of all places on it. Places that cannot be read are left out. */
export const readDisks = async (places: readonly Place[], reader: DiskReader = systemReader): Promise<DiskFacts[]> => {
  const disks = new Map<number, DiskFacts>()
  for (const { name, path } of places)
    try {
      const disk = await reader.diskOf(path)
      const known = disks.get(disk)
      if (known !== undefined) known.names.push(name)
      else {
        const { bavail, bsize, files, ffree } = await reader.roomOf(path)
        disks.set(disk, { names: [name], path, freeBytes: bavail * bsize, freeInodes: ffree, inodes: files })
      }
    } catch {
      // It is on another machine, or does not exist yet.
    }
  return [...disks.values()]
}

/** The database writes in files of 16 MB: below two of them, a write may fail at any moment. */
const fullBytes = 32 * 2 ** 20
const lowShare = 0.1
const emptyShare = 0.01
/** Without a reserve. */
const usualLowBytes = 2 ** 30

const mb = (bytes: number): string => {
  const megabytes = bytes / 2 ** 20
  return megabytes < 10_240 ? `${Math.floor(megabytes)} MB` : `${Math.floor(megabytes / 1024)} GB`
}

const mending = 'Free space (docs/guides/disk.md says what may go), or enlarge the disk.'

const spaceProblem = ({ freeBytes }: DiskFacts, name: string, reserveBytes: number): Problem | null => {
  if (freeBytes < fullBytes) return failed(`The disk of ${name} is full: ${mb(freeBytes)} are free.`, mending)
  if (freeBytes < reserveBytes)
    return failed(
      `The disk of ${name} has ${mb(freeBytes)} left, less than SLIPWAY_DISK_RESERVE_MB (${mb(reserveBytes)}): builds, fetches and pushes are refused.`,
      mending,
    )
  const lowBytes = reserveBytes === 0 ? usualLowBytes : 2 * reserveBytes
  if (freeBytes < lowBytes) return warning(`The disk of ${name} has only ${mb(freeBytes)} left.`, mending)
  return null
}

const inodeProblem = ({ freeInodes, inodes }: DiskFacts, name: string): Problem | null => {
  if (inodes === 0) return null
  const advice = `Find the folder with the most files (\`du --inodes -x / | sort -n | tail\`) and delete what is not needed.`
  const percent = Math.floor((100 * freeInodes) / inodes)
  const left = `The disk of ${name} has ${percent} % of its inodes left`
  if (freeInodes < inodes * emptyShare) return failed(`${left}: soon no file can be created on it.`, advice)
  if (freeInodes < inodes * lowShare) return warning(`${left}.`, advice)
  return null
}

const disks = topic('disks', 'Disks')

export const judgeDisks = (facts: readonly DiskFacts[], reserveBytes: number) => {
  if (facts.length === 0) return disks.skipped('No disk of this machine can be read.')
  const nameOf = ({ names, path }: DiskFacts): string => `${listed(names)} (${path})`
  const problems = facts.flatMap((disk) =>
    [spaceProblem(disk, nameOf(disk), reserveBytes), inodeProblem(disk, nameOf(disk))].filter((each) => each !== null),
  )
  return disks.judge(
    problems,
    facts.map(({ names, freeBytes }) => `${mb(freeBytes)} are free for ${listed(names)}.`).join(' '),
  )
}
