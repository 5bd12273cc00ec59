/** Files of an execution that are too large for one Secret: in parts, each in its own Secret. Pure. */
import { Secret } from '../../../lib/secret.ts'
import type { Task } from '../../runtime.ts'
import { labelsOf, type Manifest, markOf, namespaceOf, ownNameOf, type Place } from './describe.ts'
import type { PodParts } from './outputs.ts'

/** A Secret can have a megabyte, which variables and small files need too. */
export const partBytes = 512 * 1024

const isLarge = ({ content }: { content: string }): boolean => Buffer.byteLength(content) > partBytes

const largeOf = ({ files }: Pick<Task, 'files'>) => files.reveal().filter(isLarge)

/** The execution with the files that are passed whole. */
export const withoutLarge = (task: Task): Task => ({
  ...task,
  files: new Secret(task.files.reveal().filter((file) => !isLarge(file))),
})

const partsOf = (content: string): Buffer[] => {
  const bytes = Buffer.from(content)
  const count = Math.ceil(bytes.length / partBytes)
  return Array.from({ length: count }, (_, index) => bytes.subarray(index * partBytes, (index + 1) * partBytes))
}

const nameOf = (task: Task, place: Place, content: string, index: number): string =>
  `${ownNameOf(task)}-${markOf(content, place.ownerId)}-${index}`

export const describeParts = (task: Task, place: Place): Manifest[] =>
  largeOf(task).flatMap(({ content }) =>
    partsOf(content).map((part, index) => ({
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: {
        name: nameOf(task, place, content, index),
        namespace: namespaceOf(task.environmentId),
        labels: labelsOf(task, place),
      },
      type: 'Opaque',
      immutable: true,
      data: { part: part.toString('base64') },
    })),
  )

/** The pod gets them, in the order of their names. */
export const withParts = <T extends PodParts>(task: Task, place: Place, pod: T): T => {
  const large = largeOf(task)
  const volumes = large.map(({ content }, file) => ({
    name: `parts-${file}`,
    projected: {
      defaultMode: 0o444,
      sources: partsOf(content).map((_, index) => ({
        secret: {
          name: nameOf(task, place, content, index),
          items: [{ key: 'part', path: String(index).padStart(3, '0') }],
        },
      })),
    },
  }))
  const mounts = large.map(({ path }, file) => ({ name: `parts-${file}`, mountPath: `${path}.parts`, readOnly: true }))
  return {
    ...pod,
    volumes: [...pod.volumes, ...volumes],
    containers: pod.containers.map((each) => ({ ...each, volumeMounts: [...each.volumeMounts, ...mounts] })),
  }
}
