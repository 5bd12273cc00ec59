/** A full disk, as the system, PostgreSQL or an engine says it, also as the cause of another error. */
export const isDiskFull = (error: unknown): boolean => {
  const { code, message = '', cause } = error as { code?: string; message?: string; cause?: unknown }
  const isSaid = code === 'ENOSPC' || code === '53100' || /no space left on device/i.test(message)
  return isSaid || (cause instanceof Error && isDiskFull(cause))
}
