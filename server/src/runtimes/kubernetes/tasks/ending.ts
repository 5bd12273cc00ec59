/** The result of an execution, from its pod or its stored ending, and its outputs. Pure. */

import { DeploymentError } from '../../../lib/errors.ts'
import { readJson } from '../../../lib/foreign-text/read-json.ts'
import type { Task, TaskEnd, TaskOutputs } from '../../runtime.ts'
import { annotations } from '../manifests/describe.ts'
import { longestMessage } from '../manifests/task.ts'
import type { Found } from '../objects.ts'
import { isOver, mainOf, type Pod } from '../pods.ts'

/** The stored form of an execution's result. */
export interface Ending {
  exitCode: number
  oomKilled: boolean
  timedOut: boolean
  /** The content of the one file that is read; null: none. */
  left: string | null
}

/** Null while it runs. A pod that is ended from outside ends with its program. */
export const endingOf = (pod: Pod): Ending | null => {
  const ended = mainOf(pod)?.state?.terminated
  const timedOut = pod.status?.reason === 'DeadlineExceeded'
  // The cluster counts the time for pulling the image: it may be over before the program begins.
  if (ended === undefined)
    return timedOut && isOver(pod) ? { exitCode: 137, oomKilled: false, timedOut, left: null } : null
  const { exitCode = 0, reason, message } = ended
  return {
    exitCode,
    oomKilled: reason === 'OOMKilled',
    timedOut,
    left: message === undefined || message === '' ? null : message,
  }
}

export const endingIn = ({ metadata }: Found): Ending | null => {
  const text = metadata.annotations?.[annotations.end]
  if (text === undefined) return null
  try {
    const { exitCode, oomKilled, timedOut, left } = readJson(text) as Ending
    return {
      exitCode: Number(exitCode),
      oomKilled: oomKilled === true,
      timedOut: timedOut === true,
      left: left ?? null,
    }
  } catch {
    return null
  }
}

export const outputsOf = ({ left }: Ending, { outputs }: Pick<Task, 'outputs'>): TaskOutputs => {
  const [output] = outputs
  if (output === undefined || left === null) return {}
  const bytes = Buffer.byteLength(left)
  // The cluster passes on the last 4 KiB of a file, and does not say when there was more.
  if (bytes < longestMessage && bytes <= output.maxBytes) return { [output.path]: { text: left } }
  const most = Math.min(longestMessage - 1, output.maxBytes)
  const message = `The file ${output.path} is larger than ${most} bytes, which is the most that a run on this cluster may leave.`
  return { [output.path]: { error: new DeploymentError('file_too_large', message) } }
}

export const endOf = (ending: Ending, task: Pick<Task, 'outputs'>): TaskEnd => {
  const { exitCode, oomKilled, timedOut } = ending
  return { exitCode, oomKilled, timedOut, outputs: outputsOf(ending, task) }
}
