/**
 * Live data: one websocket, which connects again by itself, with longer and longer pauses that differ from page to
 * page. The caller fetches what it missed when `onOpen` reports that the stream is back.
 */
import { useEffect, useRef, useSyncExternalStore } from 'react'
import { readSession } from './session.ts'
import { readKey } from './session-key.ts'

const firstPauseMs = 300
const longestPauseMs = 8000

/** Streams that should be open but are not: the banner says so. */
const broken = new Set<object>()
const watchers = new Set<() => void>()
const note = (stream: object, isBroken: boolean): void => {
  const before = broken.size
  if (isBroken) broken.add(stream)
  else broken.delete(stream)
  if (broken.size !== before) for (const watcher of watchers) watcher()
}

export const useIsOffline = (): boolean =>
  useSyncExternalStore(
    (watcher) => {
      watchers.add(watcher)
      return () => watchers.delete(watcher)
    },
    () => broken.size > 0,
  )

interface Reader<T> {
  onMessage(message: T): void
  /** The stream is open; `again` after it was lost. */
  onOpen?(again: boolean): void
}

const addressOf = (path: string): string => `${location.origin.replace(/^http/, 'ws')}${path}`

/** Follows a stream until the returned function is called. */
const follow = <T>(path: string, reader: () => Reader<T>): (() => void) => {
  const self = {}
  let socket: WebSocket | null = null
  let timer: ReturnType<typeof setTimeout> | undefined
  let pauseMs = firstPauseMs
  let opened = 0
  let over = false
  const connect = (): void => {
    clearTimeout(timer)
    timer = undefined
    socket = new WebSocket(addressOf(path), ['v1', `console.${readKey() ?? ''}`])
    socket.onopen = () => {
      pauseMs = firstPauseMs
      note(self, false)
      opened += 1
      reader().onOpen?.(opened > 1)
    }
    socket.onmessage = ({ data }) => reader().onMessage(JSON.parse(String(data)) as T)
    socket.onclose = ({ code, reason }) => {
      // Ended because there are no more data, or nothing to follow: nothing is lost.
      if (over || code === 1000 || reason.startsWith('NotFound')) return
      if (opened > 0 || pauseMs > firstPauseMs * 4) note(self, true)
      // A request finds out whether the session has ended: a refused socket gives no reason.
      if (pauseMs > firstPauseMs || code === 1008) void readSession().catch(() => undefined)
      timer = setTimeout(connect, pauseMs * (0.5 + Math.random()))
      pauseMs = Math.min(longestPauseMs, pauseMs * 2)
    }
  }
  // The network is back, or the window is visible again: no reason to wait any longer.
  const hurry = (): void => {
    if (timer !== undefined && document.visibilityState === 'visible') connect()
  }
  connect()
  addEventListener('online', hurry)
  document.addEventListener('visibilitychange', hurry)
  return () => {
    over = true
    removeEventListener('online', hurry)
    document.removeEventListener('visibilitychange', hurry)
    clearTimeout(timer)
    note(self, false)
    socket?.close()
  }
}

/** Follows a stream while the page is shown; a path of null follows nothing. */
export const useStream = <T>(path: string | null, reader: Reader<T>): void => {
  const latest = useRef(reader)
  latest.current = reader
  useEffect(() => (path === null ? undefined : follow<T>(path, () => latest.current)), [path])
}
