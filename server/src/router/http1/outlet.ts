/** Writes to a socket: small pieces of one turn are sent together, large ones without being copied twice. */
import type { Socket } from 'node:net'

/** For small pieces, strings with one byte per character are the fastest. */
const smallBytes = 4096
const mostText = 16_000

export class Outlet {
  private readonly socket: Socket
  private text = ''
  private isCorked = false

  constructor(socket: Socket) {
    this.socket = socket
  }

  /** Latin-1. */
  say(text: string): void {
    this.text += text
  }

  /** Bytes that are valid during the call only. */
  pass(bytes: Buffer, from: number, to: number): void {
    if (to - from <= smallBytes && this.text.length < mostText) {
      this.text += bytes.toString('latin1', from, to)
      return
    }
    this.cork()
    this.socket.write(Buffer.from(bytes.subarray(from, to)))
  }

  private cork(): void {
    if (!this.isCorked) this.socket.cork()
    this.isCorked = true
    this.writeText()
  }

  private writeText(): void {
    if (this.text === '') return
    const { text } = this
    this.text = ''
    this.socket.write(text, 'latin1')
  }

  /** False: wait for `drain`. */
  flush(): boolean {
    this.writeText()
    if (this.isCorked) {
      this.isCorked = false
      this.socket.uncork()
    }
    return !this.socket.writableNeedDrain
  }
}
