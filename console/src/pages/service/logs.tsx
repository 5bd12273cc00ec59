/** What the instances of a service print. */
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { useStream } from '../../api/stream.ts'
import { LogView, useLines } from '../../ui/log-view.tsx'
import { tell } from '../../ui/toasts.tsx'
import type { Shown } from './shown.ts'

interface WireLine {
  created_at: number
  message: string
  pod_name: string
  severity_text: string
}

export const Logs = ({ service, status }: Shown) => {
  const { q = '', line } = useSearch({ from: '/frame/s/$kind/$serviceId/$section' })
  const navigate = useNavigate()
  const { lines, add, clear, dropped } = useLines()
  const put = (search: { q?: string | undefined; line?: string | undefined }): void =>
    void navigate({ to: '.', search: { q: q || undefined, line, ...search }, replace: true })
  // Lines have no number of their own: the time and how many came at that time name one, again after a reload.
  const [seen] = useState(() => new Map<string, number>())
  useStream<WireLine | WireLine[]>(`/service/logs?service=${service.id}&limit=2000`, {
    onOpen() {
      seen.clear()
      clear()
    },
    onMessage(frame) {
      add(
        [frame].flat().map(({ created_at: at, message, pod_name: from, severity_text: severity }) => {
          const name = `${at}-${from}`
          const count = (seen.get(name) ?? 0) + 1
          seen.set(name, count)
          return { id: `${name}-${count}`, at, text: message, isError: severity === 'ERROR', from }
        }),
      )
    },
  })
  return (
    <LogView
      lines={lines}
      dropped={dropped}
      name={service.name}
      empty={status?.running_state === 'RUNNING' ? 'It has printed nothing yet.' : 'Nothing to show: no instance runs.'}
      search={q}
      onSearch={(text) => put({ q: text || undefined })}
      markedLine={line}
      onLine={(id) => {
        put({ line: id })
        void navigator.clipboard
          ?.writeText(`${location.origin}${location.pathname}?line=${encodeURIComponent(id)}`)
          .then(() => tell('The link to this line was copied.'))
      }}
      showsFrom
    />
  )
}
