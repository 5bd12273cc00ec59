/** What a deploy would bring in place of what is deployed, and whether it may leave a service alone. Pure. */
import type { Commit } from '../../builds/builder.ts'
import type { ServiceRequest, Source } from '../deployments.ts'
import type { Release } from './releases.ts'

/** The deployed version (`from`), and the one that would be (`to`). */
export type Version =
  /** Null: nothing is deployed; the head of the branch cannot be read. */
  | { of: 'commit'; from: string | null; to: string | null }
  /** References that never move, and their names. `to` is null for an image that is not known before it is pulled. */
  | { of: 'image' | 'chart'; from: string | null; to: string | null; fromName: string | null; toName: string | null }

export const isSameVersion = ({ from, to }: Version): boolean => to !== null && from === to

export interface Skippable {
  wholeEnvironment: boolean
  /** The running version ends before a new one starts. */
  stopsFirst: boolean
  /** Its program is run to its end. */
  runsTask: boolean
  /** It has a current release, and should run. */
  released: boolean
  running: boolean
}

/** Whether an unchanged service is left alone: one of a whole environment, or one that a rollout would interrupt. */
export const mayBeSkipped = ({ wholeEnvironment, stopsFirst, runsTask, released, running }: Skippable): boolean =>
  (wholeEnvironment || stopsFirst) && !runsTask && released && running

export const commitOf = (release: Release | null): string | null =>
  (release?.commit as Commit | null | undefined)?.git_commit_id ?? null

/** Whether a deploy of this image keeps the release's own, whatever its registry has by now. */
export const staysAt = (
  current: Release | null,
  wanted: Extract<Source, { from: 'image' }>,
  { redeploy, imageTag }: Pick<ServiceRequest, 'redeploy' | 'imageTag'>,
): boolean => {
  const from = current?.source ?? null
  if (from === null || from.registryId !== wanted.registryId || from.name !== wanted.name) return false
  if (redeploy === true) return from.configured === wanted.tag
  // Images without a registry of the user's own are public ones, whose tag stays what it was when it was first pulled.
  return wanted.registryId === null && from.tag === (imageTag ?? wanted.tag)
}
