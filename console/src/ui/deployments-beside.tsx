/** Reads the deployments of a service within the time of its log, and merges their lines into it. */
import { useQuery } from '@tanstack/react-query'
import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react'
import { type DeploymentLine, readDeploymentLines, useDeploymentLines } from '../api/deployment-log.ts'
import { createLineNames } from '../api/log-history.ts'
import type { Line } from '../api/log-line.ts'
import * as read from '../api/queries.ts'
import { type Execution, overlapping } from './log-merge.ts'
import type { LogStore } from './log-store.ts'
import { isBusy } from './state.tsx'
import { tellProblem } from './toasts.tsx'

const mostDeployments = 5
/** The newest of each. */
const mostLines = 2000

type Put = (executionId: string, lines: readonly Line[] | null) => void

/** The output of programs of these kinds during a deployment is in its log, and also in that of the service. */
const printsInDeployments: ReadonlySet<read.Kind> = new Set(['job', 'terraform'])

/** The name of a line is the same after each read, and differs from that of every instance. */
const createNaming = ({ id, kind, environmentId }: read.Service, executionId: string) => {
  const number = read.numberOf(executionId)
  const nameOf = createLineNames()
  return (lines: readonly DeploymentLine[]): Line[] =>
    lines
      .filter(
        ({ about, step }) =>
          about === environmentId || (about === id && !(step === 'Executing' && printsInDeployments.has(kind))),
      )
      .map(({ step: _, about, ...line }) => ({
        ...line,
        id: nameOf(line.at, about === id ? `#${number}` : `#${number}e`),
        from: `Deployment #${number}`,
        deployment: Number(number),
      }))
}

interface FollowedProps {
  service: read.Service
  executionId: string
  isOver: boolean
  put: Put
}

const Followed = ({ service, executionId, isOver, put }: FollowedProps) => {
  const { environmentId } = service
  // One that ends meanwhile is still followed: its last lines are still arriving.
  const [isLive] = useState(!isOver)
  const latest = useRef(service)
  const made = useRef<{ nameAll: ReturnType<typeof createNaming>; lines: Line[] } | null>(null)
  const add = useCallback(
    (lines: readonly DeploymentLine[], isAgain: boolean): void => {
      if (isAgain || made.current === null)
        made.current = { nameAll: createNaming(latest.current, executionId), lines: [] }
      const { nameAll, lines: before } = made.current
      made.current.lines = [...before, ...nameAll(lines)].slice(-mostLines)
      put(executionId, made.current.lines)
    },
    [executionId, put],
  )
  useDeploymentLines(environmentId, isLive ? executionId : null, {
    onOpen: () => add([], true),
    onLines: (lines) => add(lines, false),
  })
  useEffect(() => {
    if (isLive) return
    let isWanted = true
    readDeploymentLines(environmentId, executionId).then((lines) => isWanted && add(lines, true), tellProblem)
    return () => {
      isWanted = false
    }
  }, [environmentId, executionId, isLive, add])
  useEffect(() => () => put(executionId, null), [executionId, put])
  return null
}

type Entry = Awaited<ReturnType<NonNullable<ReturnType<typeof read.serviceHistory>['queryFn']>>>[number]

const toExecution = ({ identifier, status, auditing_data: { created_at, updated_at } }: Entry): Execution => ({
  id: identifier.execution_id,
  fromMs: Date.parse(created_at),
  toMs: isBusy(status) ? Number.POSITIVE_INFINITY : Date.parse(updated_at),
})

interface Props {
  log: LogStore
  service: read.Service
  /** A line that is linked to: its deployment is among those that are read. */
  line: string | undefined
}

export const DeploymentsBeside = ({ log, service, line }: Props) => {
  const { data } = useQuery(read.serviceHistory(service.kind, service.id, service.environmentId))
  const executions = useMemo(() => (data ?? []).map(toExecution), [data])
  const number = /-#(\d+)/.exec(line ?? '')?.[1]
  const wanted = number === undefined ? undefined : `${service.environmentId}-${number}`
  const chosen = useSyncExternalStore(log.subscribe, () =>
    overlapping(executions, log.loaded(), mostDeployments, wanted)
      .map(({ id }) => id)
      .join(' '),
  )
  const known = useRef(new Map<string, readonly Line[]>())
  const put = useCallback<Put>(
    (executionId, lines) => {
      if (lines === null) known.current.delete(executionId)
      else known.current.set(executionId, lines)
      log.place([...known.current.values()].flat())
    },
    [log],
  )
  return chosen
    .split(' ')
    .filter((id) => id !== '')
    .map((id) => (
      <Followed
        key={id}
        service={service}
        executionId={id}
        isOver={executions.find((each) => each.id === id)?.toMs !== Number.POSITIVE_INFINITY}
        put={put}
      />
    ))
}
