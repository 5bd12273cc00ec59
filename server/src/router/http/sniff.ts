/** Distinguishes HTTP/2 from HTTP/1.1 by a connection's first bytes, on the port that both share. */
import type { Server } from 'node:http'
import type { Socket } from 'node:net'

/** `PRI * HTTP/2.0` begins every HTTP/2 connection, and no method of HTTP/1.1 begins so. */
const preface = Buffer.from('PRI')

const isStart = (bytes: Buffer): boolean => preface.subarray(0, bytes.length).equals(bytes)

/** All connections that have not sent enough yet, with their time of arrival. */
const watchSilent = (timeoutMs: number) => {
  const silent = new Map<Socket, number>()
  const sweep = (): void => {
    const latest = performance.now() - timeoutMs
    for (const [socket, since] of silent) if (since < latest) socket.destroy()
  }
  const timer = setInterval(sweep, Math.min(1_000, timeoutMs / 4)).unref()
  const end = (): void => {
    clearInterval(timer)
    for (const socket of silent.keys()) socket.destroy()
  }
  return { silent, end }
}

/**
 * Inserts itself between the server's socket and its parser. A connection goes to the server, or to `onHttp2`, as soon
 * as its first bytes decide; one that sends nothing is closed after `timeoutMs`, or by `end`.
 */
export const sniff = (server: Server, timeoutMs: number, onHttp2: (socket: Socket) => void): { end(): void } => {
  const [onHttp1] = server.listeners('connection') as ((socket: Socket) => void)[]
  server.removeAllListeners('connection')
  const { silent, end } = watchSilent(timeoutMs)

  server.on('connection', (socket: Socket) => {
    let held: Buffer | undefined
    const drop = (): void => void socket.destroy()
    const forget = (): void => void silent.delete(socket)
    const onData = (bytes: Buffer): void => {
      held = held === undefined ? bytes : Buffer.concat([held, bytes])
      const begins = held.subarray(0, preface.length)
      // 'P' alone may become a POST too.
      if (isStart(begins) && begins.length < preface.length) return
      forget()
      socket.off('data', onData).off('end', drop).off('error', drop).off('close', forget)
      if (isStart(begins)) {
        socket.pause()
        socket.unshift(held)
        onHttp2(socket)
      } else {
        onHttp1!.call(server, socket)
        // The parser reads what comes next by itself. Unshifting this would cost a turn of the event loop.
        socket.emit('data', held)
      }
    }
    silent.set(socket, performance.now())
    socket.on('data', onData).on('end', drop).on('error', drop).on('close', forget)
  })
  return { end }
}
