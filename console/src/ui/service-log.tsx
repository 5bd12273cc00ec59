/** The output of a service's instances: live, or of a past time. */
import { Button, Select, Switch } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useRef } from 'react'
import { createLineNames, mostPastLines, readLines, timeIn } from '../api/log-history.ts'
import type { Line } from '../api/log-line.ts'
import * as read from '../api/queries.ts'
import { useStream } from '../api/stream.ts'
import { DeploymentsBeside } from './deployments-beside.tsx'
import { type LogStore, useLog } from './log-store.ts'
import { type Filters, indexOf, LogView } from './log-view.tsx'
import { tell, tellProblem } from './toasts.tsx'

interface WireLine {
  created_at: number
  message: string
  pod_name: string
  severity_text: string
}

const minuteMs = 60_000
const ranges: Record<string, { label: string; ms: number }> = {
  '15m': { label: 'Last 15 minutes', ms: 15 * minuteMs },
  '1h': { label: 'Last hour', ms: 60 * minuteMs },
  '24h': { label: 'Last 24 hours', ms: 1440 * minuteMs },
  '7d': { label: 'Last 7 days', ms: 7 * 1440 * minuteMs },
}
const oldestMs = 30 * 1440 * minuteMs

const useArriving = (log: LogStore, serviceId: string): void => {
  const nameOf = useRef(createLineNames())
  useStream<WireLine | WireLine[]>(`/service/logs?service=${serviceId}&limit=2000`, {
    onOpen(again) {
      nameOf.current = createLineNames()
      if (again) log.resume()
    },
    onMessage(frame) {
      log.add(
        [frame].flat().map(({ created_at: at, message, pod_name: from, severity_text: severity }) => ({
          ...{ id: nameOf.current(at, from), at, text: message, isError: severity === 'ERROR', from },
        })),
      )
    },
  })
}

/** Reads the minutes around a linked line that is older than the shown ones. */
const useAround = (log: LogStore, line: string | undefined, show: (fromMs: number, toMs: number) => void): void => {
  const latest = useRef(show)
  latest.current = show
  useEffect(() => {
    if (line === undefined) return
    let isDone = false
    const look = (): void => {
      const oldest = log.oldest()
      if (isDone || oldest === undefined) return
      isDone = true
      const at = timeIn(line)
      // A line of a deployment may exist already.
      if (at < oldest.at && indexOf(log.lines(), line) === -1) latest.current(at - 5 * minuteMs, at + 5 * minuteMs)
    }
    look()
    return log.subscribe(look)
  }, [log, line])
}

/** Start of the returned lines: there may be earlier ones if the answer is full. */
const beginOf = (lines: readonly Line[], fromMs: number): number =>
  lines.length < mostPastLines ? fromMs : Math.max(fromMs, lines[0]!.at)

/** Link to a line; a line of a deployment exists only while those are shown. */
const linkTo = ({ id, deployment }: Line): string => {
  const search = new URLSearchParams({ line: id, ...(deployment === undefined ? {} : { deployments: 'on' }) })
  return `${location.origin}${location.pathname}?${search}`
}

export const ServiceLog = ({ service, isRunning }: { service: read.Service; isRunning: boolean }) => {
  const {
    q = '',
    level = 'all',
    from,
    range,
    line,
    deployments,
  } = useSearch({ from: '/frame/s/$kind/$serviceId/$section' })
  const navigate = useNavigate()
  const log = useLog()
  const { data: environment } = useQuery(read.environment(service.environmentId))
  useArriving(log, service.id)
  const reading = useMutation({
    mutationFn: (time: { fromMs: number; toMs: number }) =>
      readLines({ clusterId: environment!.cluster_id, serviceId: service.id, ...time }),
    onError: tellProblem,
  })
  const show = (fromMs: number, toMs: number): void =>
    reading.mutate(
      { fromMs, toMs },
      { onSuccess: (lines) => log.show(lines, { fromMs: beginOf(lines, fromMs), toMs }) },
    )
  const older = (): void => {
    const toMs = log.oldest()?.at ?? Date.now()
    const onSuccess = (lines: Awaited<ReturnType<typeof readLines>>): void => {
      if (log.prepend(lines) === 0) tell('Nothing older is kept.')
    }
    // Lines of the same millisecond are read again.
    reading.mutate({ fromMs: toMs - oldestMs, toMs: toMs + 1 }, { onSuccess })
  }
  useAround(log, environment === undefined ? undefined : line, (fromMs, toMs) =>
    reading.mutate(
      { fromMs, toMs },
      {
        onSuccess(lines) {
          // Its deployment may have been read meanwhile.
          if (indexOf(log.lines(), line!) === -1) log.show(lines, { fromMs: beginOf(lines, fromMs), toMs })
        },
      },
    ),
  )
  const isKnown = environment !== undefined
  const chosen = range === undefined ? undefined : ranges[range]
  // biome-ignore lint/correctness/useExhaustiveDependencies: read when it is chosen, not when it has been read
  useEffect(() => {
    if (isKnown && chosen !== undefined) show(Date.now() - chosen.ms, Date.now())
  }, [chosen, isKnown])
  const put = (search: Record<string, string | undefined>): void =>
    void navigate({ to: '.', search: (before: object) => ({ ...before, ...search }), replace: true })
  const set = ({ search, level: wanted, from: instance }: Partial<Filters>): void =>
    put({
      ...(search === undefined ? {} : { q: search || undefined }),
      ...(wanted === undefined ? {} : { level: wanted === 'all' ? undefined : wanted }),
      ...(instance === undefined ? {} : { from: instance ?? undefined }),
    })
  return (
    <LogView
      log={log}
      name={service.name}
      empty={
        isRunning
          ? 'It has printed nothing yet.'
          : 'Nothing is running now. “Load older lines” shows what was printed before.'
      }
      search={q}
      level={level}
      from={from ?? null}
      set={set}
      markedLine={line}
      onLine={(chosenLine) => {
        put({ line: chosenLine.id })
        void navigator.clipboard?.writeText(linkTo(chosenLine)).then(() => tell('The link to this line was copied.'))
      }}
      tools={
        <>
          <Select
            size="xs"
            aria-label="Time"
            w={150}
            allowDeselect={false}
            data={[
              { value: 'live', label: 'Live' },
              ...Object.entries(ranges).map(([value, { label }]) => ({ value, label })),
            ]}
            value={chosen === undefined ? 'live' : range!}
            onChange={(value) => {
              if (value === 'live') log.release()
              put({ range: value === 'live' ? undefined : (value ?? undefined) })
            }}
          />
          <Button size="compact-xs" variant="default" loading={reading.isPending} disabled={!isKnown} onClick={older}>
            Load older lines
          </Button>
          <Switch
            size="xs"
            label="Deployments"
            checked={deployments === 'on'}
            onChange={(event) => put({ deployments: event.currentTarget.checked ? 'on' : undefined })}
          />
          {deployments === 'on' ? <DeploymentsBeside log={log} service={service} line={line} /> : null}
        </>
      }
    />
  )
}
