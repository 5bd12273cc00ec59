/**
 * The page's half of a session. It opens nothing without the cookie, which no script can read; it is kept for this
 * origin, so that a new tab is signed in too.
 */
export const keyHeader = 'slipway-console-key'
const name = 'slipway.key'

type Listener = () => void
const listeners = new Set<Listener>()
const tell = (): void => {
  for (const listener of listeners) listener()
}

export const readKey = (): string | null => localStorage.getItem(name)

export const keepKey = (key: string): void => {
  localStorage.setItem(name, key)
  tell()
}

export const forgetKey = (): void => {
  if (readKey() === null) return
  localStorage.removeItem(name)
  tell()
}

/** Reports signing in and out, in other tabs too. */
export const onKey = (listener: Listener): (() => void) => {
  const onStorage = (event: StorageEvent): void => {
    if (event.key === name) listener()
  }
  listeners.add(listener)
  addEventListener('storage', onStorage)
  return () => {
    listeners.delete(listener)
    removeEventListener('storage', onStorage)
  }
}
