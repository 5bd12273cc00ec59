/**
 * Volumes of programs that do not run as root. The engine gives a new volume the files and the owner of the image's
 * mount point, and root if the image has nothing there, so that the program could not write to it: such a volume is
 * given to the image's user before the container's first start.
 *
 * Only an empty volume owned by root is changed, so that a call may be repeated after a crash at any instant and no
 * file ever changes its owner. Names of users are looked up in the image's own /etc/passwd, and used only as numbers.
 */

import { buffer } from 'node:stream/consumers'
import { pack } from 'tar-stream'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import { splitLines } from '../../lib/foreign-text/split-lines.ts'
import type { Containers } from './containers.ts'
import type { ContainerBody, Mount } from './describe.ts'
import { findAt } from './program/archive.ts'

interface Owner {
  uid: number
  gid: number
}

const tableBytes = 1 << 20
const largestId = 2 ** 31 - 2

const numberIn = (text: string | undefined): number | null =>
  text !== undefined && /^\d{1,10}$/.test(text) && Number(text) <= largestId ? Number(text) : null

/** Rows of /etc/passwd or /etc/group. */
const rowsOf = (text: string): string[][] => splitLines(text).map((line) => line.split(':'))

/** `user`: as USER of a Dockerfile, `<name or number>[:<name or number>]`. Null for an unknown one. */
export const ownerOf = (user: string, passwd: string, group: string): Owner | null => {
  const [name, groupName] = user.split(':')
  const number = numberIn(name)
  const row = rowsOf(passwd).find((each) => (number === null ? each[0] === name : numberIn(each[2]) === number))
  const uid = number ?? numberIn(row?.[2])
  const named = (): number | null => numberIn(rowsOf(group).find((each) => each[0] === groupName)?.[2])
  const gid = groupName ? (numberIn(groupName) ?? named()) : (numberIn(row?.[3]) ?? 0)
  return uid === null || gid === null ? null : { uid, gid }
}

interface VolumeOwnersParts {
  engine: Engine
  inspect: Containers['inspect']
  /** Calls `work` with a container that is never started, which has the mounts and may be written to. */
  withWritable(id: string, body: ContainerBody, work: (id: string) => Promise<void>): Promise<void>
}

export const createVolumeOwners = ({ engine, inspect, withWritable }: VolumeOwnersParts) => {
  const textAt = async (id: string, path: string, signal: AbortSignal): Promise<string> =>
    (await findAt(engine, id, path, tableBytes, signal))?.head.toString('utf8') ?? ''

  const findOwner = async (id: string, user: string, signal: AbortSignal): Promise<Owner | null> =>
    ownerOf(user, await textAt(id, '/etc/passwd', signal), await textAt(id, '/etc/group', signal))

  /** Empty folders owned by root, and their modes. */
  const findEmpty = async (id: string, targets: readonly string[], signal: AbortSignal) => {
    const empty: { target: string; mode: number }[] = []
    for (const target of targets) {
      const found = await findAt(engine, id, target, 0, signal)
      if (found === null || found.hasMore) continue
      const { type, uid, gid, mode = 0o755 } = found.header
      if (type === 'directory' && uid === 0 && gid === 0) empty.push({ target, mode: mode & 0o7777 })
    }
    return empty
  }

  /** For a container that was created and has not started yet. */
  return async (id: string, body: ContainerBody, signal: AbortSignal): Promise<void> => {
    const targets = (body.HostConfig.Mounts as Mount[]).map(({ Target }) => Target)
    if (targets.length === 0) return
    const { User } = (await inspect(id, signal)).Config
    const owner = User === '' ? null : await findOwner(id, User, signal)
    if (owner === null || owner.uid === 0) return
    const empty = await findEmpty(id, targets, signal)
    if (empty.length === 0) return
    const archive = pack()
    for (const { target, mode } of empty)
      archive.entry({ name: target.replace(/^\/+|\/+$/g, ''), type: 'directory', mode, ...owner })
    archive.finalize()
    const bytes = await buffer(archive)
    await withWritable(id, body, (writable) =>
      engine.call('PUT', `/containers/${writable}/archive`, { query: { path: '/' }, body: bytes, signal }),
    )
  }
}
