/** Short notices about events, with a link. A failure stays until it is closed. */

import { Link } from '@tanstack/react-router'
import { useSyncExternalStore } from 'react'
import { toProblem } from '../api/client.ts'
import { Icon } from './icons.tsx'

interface Toast {
  id: number
  tone: 'good' | 'bad'
  text: string
  detail?: string
  link?: { to: string; text: string }
  undo?: Undo | undefined
}

export interface Undo {
  text: string
  run(): void
}

const shownMs = 6000
/** Time enough to read it and to reach the button after a mistake. */
const shownToUndoMs = 15_000
let toasts: readonly Toast[] = []
let next = 1
const watchers = new Set<() => void>()

const set = (value: readonly Toast[]): void => {
  toasts = value
  for (const watcher of watchers) watcher()
}

const close = (id: number): void => set(toasts.filter((each) => each.id !== id))

const show = (toast: Omit<Toast, 'id'>): void => {
  const id = next++
  set([...toasts.slice(-3), { ...toast, id }])
  if (toast.tone === 'good') setTimeout(() => close(id), toast.undo === undefined ? shownMs : shownToUndoMs)
}

export const tell = (text: string, link?: Toast['link'], undo?: Undo): void =>
  show({ tone: 'good', text, undo, ...(link === undefined ? {} : { link }) })

/** A background action failed; the notice stays until it is closed. */
export const tellFailure = (text: string, link: Toast['link']): void =>
  show({ tone: 'bad', text, ...(link === undefined ? {} : { link }) })

export const tellProblem = (error: unknown): void => {
  const { message, requestId } = toProblem(error)
  show({ tone: 'bad', text: message, ...(requestId === null ? {} : { detail: `Request ${requestId}` }) })
}

const UndoButton = ({ text, run, onDone }: Undo & { onDone(): void }) => (
  <button
    type="button"
    className="as-link"
    onClick={() => {
      onDone()
      run()
    }}
  >
    {text}
  </button>
)

export const Toasts = () => {
  const shown = useSyncExternalStore(
    (watcher) => {
      watchers.add(watcher)
      return () => watchers.delete(watcher)
    },
    () => toasts,
  )
  return (
    <section className="toasts" aria-live="polite" aria-label="Notices">
      {shown.map(({ id, tone, text, detail, link, undo }) => (
        <div key={id} className={`toast ${tone}`} role={tone === 'bad' ? 'alert' : 'status'}>
          <div className="grow">
            <div className="wrap">{text}</div>
            {detail === undefined ? null : <div className="small dim wrap">{detail}</div>}
            <div className="row wraps">
              {link === undefined ? null : <Link to={link.to}>{link.text}</Link>}
              {undo === undefined ? null : <UndoButton {...undo} onDone={() => close(id)} />}
            </div>
          </div>
          <button type="button" className="plain" aria-label="Close this notice" onClick={() => close(id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </section>
  )
}
