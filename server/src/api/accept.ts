/**
 * Content negotiation (RFC 9110, 12.5.1) as far as this API offers a choice: JSON, problem documents, event streams.
 */
import { ApiError } from '../lib/errors.ts'

export const problemType = 'application/problem+json'
const jsonType = 'application/json'

interface Range {
  type: string
  quality: number
}

const rangeForm = /^\s*([\w!#$&^.+*-]+\/[\w!#$&^.+*-]+)\s*((?:;[^,]*)?)$/

/** The ranges of an Accept header; unreadable ones are ignored. */
const rangesOf = (accept: string): Range[] =>
  accept.split(',').flatMap((part) => {
    const [, type, parameters = ''] = rangeForm.exec(part) ?? []
    if (type === undefined) return []
    const quality = /;\s*q\s*=\s*([\d.]+)/i.exec(parameters)?.[1]
    return [{ type: type.toLowerCase(), quality: quality === undefined ? 1 : Number(quality) }]
  })

/** The quality of a type, from the most specific range that matches; 0 when none does. */
const qualityOf = (ranges: readonly Range[], type: string): number => {
  for (const form of [type, `${type.split('/')[0]}/*`, '*/*']) {
    const found = ranges.find((range) => range.type === form)
    if (found !== undefined) return found.quality
  }
  return 0
}

/** True if problem documents are requested explicitly and rank at least as high as plain JSON. */
export const prefersProblem = (accept: string | undefined): boolean => {
  if (accept?.toLowerCase().includes(problemType) !== true) return false
  const ranges = rangesOf(accept)
  const named = ranges.find(({ type }) => type === problemType)?.quality ?? 0
  const json = ranges.find(({ type }) => type === jsonType)?.quality ?? 0
  return named > 0 && named >= json
}

/** Throws a 406 when the client accepts nothing we can send. Accepting problem documents implies accepting JSON. */
export const checkAccept = (accept: string | undefined, produced: string): void => {
  if (accept === undefined || accept === '*/*' || accept === produced) return
  const ranges = rangesOf(accept)
  if (ranges.length === 0 || qualityOf(ranges, produced) > 0) return
  if (produced === jsonType && ranges.some(({ type, quality }) => type === problemType && quality > 0)) return
  throw new ApiError(406, 'not_acceptable', `This response is only available as ${produced}.`)
}
