import type { Readable } from 'node:stream'
import { readLines } from '../../../lib/foreign-text/read-lines.ts'
import { KubernetesError } from '../../../lib/kubernetes/kubernetes-errors.ts'
import { normalizeTime } from '../../log-time.ts'
import type { LogLine } from '../../runtime.ts'
import { labels } from '../manifests/describe.ts'
import { asDeploymentError, type Found, type Objects, pathOf } from '../objects.ts'
import { mainNameOf, mainOf, type Pod } from '../pods.ts'

export interface ReadOptions {
  tail?: number | undefined
  /** Normalised: only later lines. */
  since?: string | undefined
  until?: string | undefined
  follow?: boolean
  /** Of the container's life before this one. */
  previous?: boolean
  signal?: AbortSignal | undefined
}

const longestLine = 1 << 20
async function* linesOf(stream: Readable): AsyncGenerator<string> {
  for await (const lines of readLines(stream, { longest: longestLine, hasOpenEnd: true })) yield* lines
}

/** `2026-01-02T03:04:05.6Z text`; what has no time has none to be sorted by. */
const parseLine = (line: string, pod: Found): LogLine | null => {
  const space = line.indexOf(' ')
  const at = space === -1 ? line : line.slice(0, space)
  if (Number.isNaN(Date.parse(at))) return null
  const text = space === -1 ? '' : line.slice(space + 1)
  const revision = pod.metadata.labels?.[labels.revision] ?? ''
  return { at: normalizeTime(at), text, stream: 'stdout', instance: pod.metadata.name, revision }
}

export interface PodReader {
  /** The lines of one pod; none if it is gone, or has not started. */
  read(pod: Found, options: ReadOptions): AsyncGenerator<LogLine>
  lastLines(pod: Pod, count: number): Promise<string[]>
}

export const createReader = ({ api }: Pick<Objects, 'api'>): PodReader => {
  async function* read(pod: Found, options: ReadOptions): AsyncGenerator<LogLine> {
    const { tail, since, until, follow = false, previous = false, signal } = options
    const { name, namespace } = pod.metadata
    const query = {
      container: mainNameOf(pod),
      timestamps: true,
      ...(follow ? { follow } : {}),
      ...(previous ? { previous } : {}),
      ...(tail === undefined ? {} : { tailLines: tail }),
      ...(since === undefined ? {} : { sinceTime: `${since.slice(0, 19)}Z` }),
    }
    try {
      const stream = await api.stream(`${pathOf('Pod', namespace, name)}/log`, { query, signal })
      for await (const text of linesOf(stream)) {
        const line = parseLine(text, pod)
        if (line === null || (since !== undefined && line.at <= since)) continue
        if (until !== undefined && line.at >= until) return
        yield line
      }
    } catch (error) {
      if (signal?.aborted) return
      // 400: it has not started. 404: gone, so what it had to say has been said.
      if (error instanceof KubernetesError && (error.status === 400 || error.status === 404)) return
      throw asDeploymentError(error, 'the log')
    }
  }

  const lastLines = async (pod: Pod, count: number): Promise<string[]> => {
    const take = async (previous: boolean): Promise<string[]> => {
      const texts: string[] = []
      for await (const { text } of read(pod, { tail: count, previous })) texts.push(text)
      return texts
    }
    const waits = mainOf(pod)?.state?.running === undefined && mainOf(pod)?.state?.terminated === undefined
    const texts = await take(false)
    return texts.length === 0 || waits ? await take((mainOf(pod)?.restartCount ?? 0) > 0) : texts
  }

  return { read, lastLines }
}
