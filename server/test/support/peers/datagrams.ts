/** Whether there is an answer over UDP. */
import { createSocket } from 'node:dgram'
import { until } from '../until.ts'

/** Datagrams may be lost: one is sent again and again until an answer is here; rejects after ten seconds. */
export const answersDatagrams = async ({ host, port }: { host: string; port: number }): Promise<boolean> => {
  const socket = createSocket('udp4')
  let answered = false
  socket.on('message', () => {
    answered = true
  })
  const ask = (): boolean => {
    socket.send('hello', port, host)
    return answered
  }
  try {
    return await until(ask, { timeoutMs: 10_000, what: 'an answer over UDP' })
  } finally {
    socket.close()
  }
}
