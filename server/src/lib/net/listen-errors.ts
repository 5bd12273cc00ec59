/** Why a port cannot be opened, in words that follow "cannot listen on host:port: ". */

interface ListenSettings {
  host: string
  port: string
}

/** Null for errors that the operator cannot fix. */
export const listenProblem = (error: unknown, { host, port }: ListenSettings): string | null => {
  const { code } = error as NodeJS.ErrnoException
  if (code === 'EADDRINUSE') return `another program uses that port; ${port} sets another one`
  if (code === 'EADDRNOTAVAIL') return `this machine does not have that address; ${host} sets another one`
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return `that host name is not known here; ${host} sets another one`
  if (code === 'EACCES') return `this user may not open that port; ${port} sets one above 1023`
  return null
}
