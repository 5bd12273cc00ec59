/** A complete list of lines, shown as a log. */
import { type ReactNode, useEffect, useState } from 'react'
import type { Line } from '../api/log-line.ts'
import { useLog } from './log-store.ts'
import { type Filters, LogView } from './log-view.tsx'

export const KeptLog = ({ lines, name, empty }: { lines: readonly Line[]; name: string; empty: ReactNode }) => {
  const log = useLog()
  const [filters, setFilters] = useState<Filters>({ search: '', level: 'all', from: null })
  useEffect(() => {
    log.restart()
    log.add(lines)
  }, [log, lines])
  return (
    <LogView
      log={log}
      name={name}
      empty={empty}
      {...filters}
      set={(changes) => setFilters((before) => ({ ...before, ...changes }))}
    />
  )
}
