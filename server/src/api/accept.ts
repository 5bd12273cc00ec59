/** What a client takes (RFC 9110, 12.5.1), as far as this API has a choice: JSON, problem documents, event streams. */
import { ApiError } from '../lib/errors.ts'

export const problemType = 'application/problem+json'
const jsonType = 'application/json'

interface Range {
  type: string
  quality: number
}

const rangeForm = /^\s*([\w!#$&^.+*-]+\/[\w!#$&^.+*-]+)\s*((?:;[^,]*)?)$/

/** The ranges of an Accept header; what cannot be read is passed over. */
const rangesOf = (accept: string): Range[] =>
  accept.split(',').flatMap((part) => {
    const [, type, parameters = ''] = rangeForm.exec(part) ?? []
    if (type === undefined) return []
    const quality = /;\s*q\s*=\s*([\d.]+)/i.exec(parameters)?.[1]
    return [{ type: type.toLowerCase(), quality: quality === undefined ? 1 : Number(quality) }]
  })

/** How much a type is wanted: what the most specific range says, 0 when none names it. */
const qualityOf = (ranges: readonly Range[], type: string): number => {
  for (const form of [type, `${type.split('/')[0]}/*`, '*/*']) {
    const found = ranges.find((range) => range.type === form)
    if (found !== undefined) return found.quality
  }
  return 0
}

/** True where problem documents are asked for by name, and not less than plain JSON. */
export const prefersProblem = (accept: string | undefined): boolean => {
  if (accept?.toLowerCase().includes(problemType) !== true) return false
  const ranges = rangesOf(accept)
  const named = ranges.find(({ type }) => type === problemType)?.quality ?? 0
  const json = ranges.find(({ type }) => type === jsonType)?.quality ?? 0
  return named > 0 && named >= json
}

/** Throws the 406 of a client that takes nothing we can send. Whoever names problem documents takes JSON. */
export const checkAccept = (accept: string | undefined, produced: string): void => {
  if (accept === undefined || accept === '*/*' || accept === produced) return
  const ranges = rangesOf(accept)
  if (ranges.length === 0 || qualityOf(ranges, produced) > 0) return
  if (produced === jsonType && ranges.some(({ type, quality }) => type === problemType && quality > 0)) return
  throw new ApiError(406, 'not_acceptable', `This can be answered as ${produced} only.`)
}
