/**
 * Files for a container with a read-only root: the engine writes no files into one, not even before its start. They
 * are written into unnamed volumes through a container that is never started, and are removed with the last container
 * that uses them. Files of the image in such a folder are in its volume too.
 *
 * When the process dies: leftovers are named like a task of the same deployment, and swept as such.
 */
import { randomBytes } from 'node:crypto'
import { dirname } from 'node:path/posix'
import { DeploymentError } from '../../lib/errors.ts'
import { Secret } from '../../lib/secret.ts'
import type { Workload } from '../runtime.ts'
import { type ContainerBody, labels, taskName } from './describe.ts'

export interface Given {
  files: Workload['files']
  /** Folders that every user may write to. */
  folders: readonly string[]
}

interface GivenFoldersParts {
  /** Creates a container, pulling its image if necessary. */
  post(name: string, body: ContainerBody): Promise<string>
  write(id: string, files: Workload['files'], folders: readonly string[]): Promise<void>
  remove(id: string, withVolumes: boolean): Promise<void>
}

interface OwnMount {
  Target: string
}

const isInside = (path: string, folder: string): boolean => path.startsWith(folder.replace(/\/*$/, '/'))

/** One that is made of the image of another, to hold folders. */
export const holderOf = (body: ContainerBody, taskId: string, folders: readonly string[]): ContainerBody => {
  const own = body.HostConfig.Mounts as OwnMount[]
  const {
    [labels.owner]: owner = '',
    [labels.service]: service = '',
    [labels.environment]: environment = '',
  } = body.Labels
  const nothing = Object.fromEntries(Object.values(labels).map((name) => [name, '']))
  const ids = { [labels.owner]: owner, [labels.service]: service, [labels.environment]: environment }
  return {
    ...body,
    Env: [],
    Labels: { ...nothing, ...ids, [labels.revision]: taskId, [labels.index]: '0', [labels.task]: taskId },
    ExposedPorts: {},
    HostConfig: {
      NetworkMode: 'none',
      RestartPolicy: { Name: 'no' },
      Mounts: [...own, ...folders.map((Target) => ({ Type: 'volume', Target }))],
    },
    NetworkingConfig: { EndpointsConfig: {} },
  }
}

const refuseTop = (files: readonly { path: string }[]): void => {
  const top = files.find(({ path }) => dirname(path) === '/')
  if (top === undefined) return
  const message = `The file ${top.path} is at the top of a read-only root filesystem: mount the variable in a folder.`
  throw new DeploymentError('read_only_root', message)
}

/** Creates the container of this name with its files. */
export const createWithGiven = async (
  { post, write, remove }: GivenFoldersParts,
  name: string,
  body: ContainerBody,
  { files, folders }: Given,
): Promise<string> => {
  const all = files.reveal()
  refuseTop(all)
  const own = (body.HostConfig.Mounts as OwnMount[]).map(({ Target }) => Target)
  const isOwn = (folder: string) => own.some((each) => folder === each || isInside(folder, each))
  const [left, read] = [all, all].map((some, at) =>
    some.filter(({ path }) => folders.includes(dirname(path)) === (at === 0)),
  )
  const readFolders = [...new Set(read!.map(({ path }) => dirname(path)))].filter((folder) => !isOwn(folder))
  const taskId = `${body.Labels[labels.revision]}-files-${randomBytes(6).toString('hex')}`
  const holders: string[] = []
  const hold = async (mode: 'ro' | 'rw', held: readonly string[], given: typeof all): Promise<string[]> => {
    if (held.length + given.length === 0) return []
    const id = await post(taskName(`${taskId}-${mode}`), holderOf(body, `${taskId}-${mode}`, held))
    holders.push(id)
    await write(id, new Secret(given), mode === 'rw' ? held : [])
    return [`${id}:${mode}`]
  }
  let made: string | undefined
  try {
    const from = [...(await hold('ro', readFolders, read!)), ...(await hold('rw', folders, left!))]
    made = await post(name, { ...body, HostConfig: { ...body.HostConfig, VolumesFrom: from } })
    return made
  } finally {
    // The engine would remove volumes of a container that has not started yet.
    await Promise.all(holders.map((id) => remove(id, made === undefined)))
  }
}
