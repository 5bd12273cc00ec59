/**
 * Which operation a request is for. Our own, because the framework's table compiles functions for each route, which
 * takes a fifth of the start of the server for the hundreds that there are.
 */
import { isTextType, type Operation } from './operations/operation.ts'

export interface Match {
  operation: Operation
  /** Decoded, by the names in the operation's path. */
  params: Record<string, string>
}

export interface RouteTable {
  /** Null where no operation has this path and method. */
  find(method: string, url: string): Match | null
  /** For `Allow`; null for a path that no operation has. */
  methodsOf(url: string): string | null
}

interface Place {
  /** By the segment's text. */
  next: Map<string, Place>
  /** For a segment that is a parameter. */
  any: Place | null
  operations: Map<string, Operation>
}

const longestParam = 200

const createPlace = (): Place => ({ next: new Map(), any: null, operations: new Map() })

const isParam = (segment: string): boolean => segment.startsWith('{')

const add = (root: Place, operation: Operation): void => {
  let place = root
  for (const segment of operation.path.slice(1).split('/')) {
    const known = isParam(segment) ? place.any : place.next.get(segment)
    const next = known ?? createPlace()
    if (isParam(segment)) place.any = next
    else place.next.set(segment, next)
    place = next
  }
  place.operations.set(operation.method, operation)
}

const decode = (segment: string): string | null => {
  if (!segment.includes('%')) return segment
  try {
    return decodeURIComponent(segment)
  } catch {
    return null
  }
}

/** The segments of the path, which may be that of an absolute URL; null if one cannot be decoded. */
const segmentsOf = (url: string): string[] | null => {
  const path = (url.startsWith('/') ? url : url.replace(/^https?:\/\/[^/]*/, '')).split(/[?#]/, 1)[0]!
  if (!path.startsWith('/')) return null
  const segments = path.slice(1).split('/').map(decode)
  return segments.includes(null) ? null : (segments as string[])
}

/** The places of a path, those with more of it spelled out first. */
function* placesOf(place: Place, segments: readonly string[], at = 0): Generator<Place> {
  const segment = segments[at]
  if (segment === undefined) {
    yield place
    return
  }
  const next = place.next.get(segment)
  if (next !== undefined) yield* placesOf(next, segments, at + 1)
  if (place.any !== null && segment !== '' && segment.length <= longestParam)
    yield* placesOf(place.any, segments, at + 1)
}

const paramsOf = ({ path }: Operation, segments: readonly string[]): Record<string, string> => {
  const params: Record<string, string> = {}
  for (const [index, name] of path.slice(1).split('/').entries())
    if (isParam(name)) params[name.slice(1, -1)] = segments[index]!
  return params
}

const hasHead = ({ produces }: Operation): boolean => produces === undefined || isTextType(produces)

export const createRouteTable = (operations: readonly Operation[]): RouteTable => {
  const root = createPlace()
  for (const operation of operations) add(root, operation)
  return {
    find(method, url) {
      const segments = segmentsOf(url)
      if (segments === null) return null
      for (const place of placesOf(root, segments)) {
        const operation = place.operations.get(method === 'HEAD' ? 'GET' : method)
        if (operation !== undefined && (method !== 'HEAD' || hasHead(operation)))
          return { operation, params: paramsOf(operation, segments) }
      }
      return null
    },
    methodsOf(url) {
      const methods = new Set<string>()
      for (const { operations } of placesOf(root, segmentsOf(url) ?? []))
        for (const method of operations.keys()) {
          methods.add(method)
          if (method === 'GET') methods.add('HEAD')
        }
      return methods.size === 0 ? null : [...methods, 'OPTIONS'].join(', ')
    },
  }
}
