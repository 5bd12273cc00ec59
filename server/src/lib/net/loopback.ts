/** Whether a Host header names this machine itself. */
export const isLoopbackHost = (header: string): boolean =>
  /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?$/i.test(header)

/** Whether the address of a socket's other end is on this machine. */
export const isLoopbackAddress = (address: string): boolean =>
  /^(127(\.\d{1,3}){3}|::1|::ffff:127(\.\d{1,3}){3})$/i.test(address)
