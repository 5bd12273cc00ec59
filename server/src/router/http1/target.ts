/**
 * Connections to one target. One is reused only if the previous exchange ended as both sides announced: the request
 * was sent completely, the response was read completely, no bytes followed it.
 */
import { connect, type Socket } from 'node:net'
import { ClosedError, LateError, MalformedError, TooLarge } from '../exchange/failures.ts'
import { mostHeaderBytes } from '../policy.ts'
import type { Target } from '../router.ts'
import { BodyReader, type BodySink, badChunks } from './body.ts'
import { malformed, more, tooLarge } from './head.ts'
import { Outlet } from './outlet.ts'
import { ResponseHead } from './response-head.ts'
import { createSweep, type Limited } from './sweep.ts'

/** The exchange that a connection carries. */
export interface TargetUser {
  readonly method: string
  /** It is connected; the request may be sent. */
  onReady(connection: TargetConnection): void
  /** `status` is below 200. */
  onHint(head: ResponseHead): void
  /** Returns whether chunks should be passed in their framing. */
  onHead(head: ResponseHead): boolean
  /** Bytes of the response's body, valid during the call only. */
  onData(bytes: Buffer, from: number, to: number): void
  /** All that has arrived was given. */
  onTurn(): void
  onEnd(trailers: string[]): void
  onFailure(error: Error): void
  onDrain(): void
}

export interface TargetPool {
  /** Calls `onReady` of its user, at once if a connection is free. */
  ask(user: TargetUser): TargetConnection
  /** Closes idle connections, and the others when they become idle. */
  close(): void
}

interface Owner {
  readonly target: Target
  readonly idleMs: number
  readonly longestIdleMs: number
  release(connection: TargetConnection): void
  /** `isOurs`: we closed it. */
  forget(connection: TargetConnection, isOurs: boolean): void
}

/** Long enough for the kernel to retry once, after a second, if a program's queue was full. */
const connectTimeoutMs = 1_500
const aliveProbeMs = 60_000
/** Shorter limits have a timer of their own. */
const sweepMs = 250
const shortMs = 5_000
/** A connection is not used so shortly before the announced end: its program may be closing it. */
const hintMarginMs = 1_000
const mostHints = 100

/** All connections read into it: bytes are used, or copied, before the next read. */
const readBuffer = Buffer.allocUnsafeSlow(65_536)

// Programs send the same each time.
let lastHint: string | undefined
let lastHintMs: number | null = null

/** How long a program announces that it keeps the connection; null: it does not. */
const hintMsOf = (keepAlive: string | undefined): number | null => {
  if (keepAlive === lastHint) return lastHintMs
  const hint = keepAlive === undefined ? null : /timeout=\s*(\d+)/i.exec(keepAlive)
  lastHint = keepAlive
  lastHintMs = hint === null ? null : Number(hint[1]) * 1000
  return lastHintMs
}

/** None of them needs to be precise. */
const sweep = createSweep<TargetConnection>(sweepMs)

export class TargetConnection implements Limited, BodySink {
  lateAt = 0
  private readonly owner: Owner
  private readonly socket: Socket
  private readonly outlet: Outlet
  private readonly head = new ResponseHead()
  private readonly body = new BodyReader()
  private user: TargetUser | null
  private held: Buffer | null = null
  private isConnected = false
  private isInBody = false
  private isSent = false
  private isPaused = false
  private hints = 0
  private limitMs = 0
  private timer: NodeJS.Timeout | undefined

  constructor(owner: Owner, user: TargetUser) {
    this.owner = owner
    this.user = user
    const { host, port } = owner.target
    this.socket = connect({
      ...{ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: aliveProbeMs },
      onread: {
        buffer: readBuffer,
        callback: (length) => {
          this.onRead(readBuffer, length)
          return true
        },
      },
    })
    this.outlet = new Outlet(this.socket)
    this.limit(connectTimeoutMs)
    sweep.add(this)
    this.socket
      .on('connect', () => this.onConnect())
      .on('drain', () => this.user?.onDrain())
      .on('end', () => this.onPeerEnd())
      .on('error', (error) => this.fail(error))
      .on('close', () => this.fail(new ClosedError()))
  }

  private onConnect(): void {
    this.limit(0)
    this.isConnected = true
    this.begin()
  }

  /** For the next exchange, if it can still have one. */
  take(user: TargetUser): boolean {
    if (this.socket.destroyed || this.lateAt <= performance.now()) return false
    this.limit(0)
    this.user = user
    this.begin()
    return true
  }

  private begin(): void {
    this.isSent = false
    this.isInBody = false
    this.hints = 0
    this.head.reset()
    this.user?.onReady(this)
  }

  /** Latin-1. */
  say(text: string): void {
    this.outlet.say(text)
  }

  pass(bytes: Buffer, from: number, to: number): void {
    this.outlet.pass(bytes, from, to)
  }

  /** False: `onDrain` follows. */
  flush(): boolean {
    return this.socket.destroyed || this.outlet.flush()
  }

  /** All of the request was written. */
  finishRequest(): void {
    this.isSent = true
  }

  /** For the next bytes; 0: no limit. Each read begins it anew. */
  limit(ms: number): void {
    if (this.timer !== undefined) {
      clearTimeout(this.timer)
      this.timer = undefined
    }
    this.limitMs = ms
    this.lateAt = ms > 0 ? performance.now() + ms : 0
    if (ms > 0 && ms < shortMs) this.timer = setTimeout(() => this.onLate(), ms)
  }

  private touch(): void {
    if (this.limitMs === 0) return
    this.lateAt = performance.now() + this.limitMs
    this.timer?.refresh()
  }

  onLate(): void {
    if (this.isPaused) this.touch()
    else if (this.user === null) this.destroy()
    else this.fail(this.isConnected ? new LateError() : new Error('no connection in time'))
  }

  pause(): void {
    this.isPaused = true
    this.socket.pause()
  }

  resume(): void {
    if (!this.isPaused) return
    this.isPaused = false
    this.touch()
    this.socket.resume()
  }

  /** Aborts it, whatever it carries; its user gets the error. */
  abort(error: Error): void {
    this.fail(error, true)
  }

  private onRead(read: Buffer, length: number) {
    if (this.user === null) return this.destroy()
    this.touch()
    let bytes = read
    let end = length
    if (this.held !== null) {
      bytes = Buffer.concat([this.held, read.subarray(0, length)])
      end = bytes.length
      this.held = null
    }
    const at = this.isInBody ? 0 : this.readHead(bytes, end)
    if (at >= 0 && this.isInBody) this.readBody(bytes, at, end)
  }

  /** The position after it; negative: nothing is left to continue with. */
  private readHead(bytes: Buffer, end: number): number {
    const { head, user } = this
    for (let from = 0; ; ) {
      const at = head.read(bytes, from, end, mostHeaderBytes)
      if (at === more) {
        this.held = Buffer.from(bytes.subarray(from, end))
        return -1
      }
      if (at === tooLarge) return this.fail(new TooLarge('headers'))
      if (at === malformed) return this.fail(new MalformedError(head.fault))
      if (head.status >= 200) return this.beginBody(at)
      if (head.status === 101) return this.fail(new MalformedError('it switches to a protocol that was not requested'))
      if (++this.hints > mostHints) return this.fail(new MalformedError('it has too many interim responses'))
      user!.onHint(head)
      if (this.user !== user) return -1
      head.reset()
      from = at
    }
  }

  private beginBody(at: number): number {
    const { head, user } = this
    const length = head.bodyLength(user!.method)
    if (length === malformed) return this.fail(new MalformedError(head.fault))
    this.isInBody = true
    const isFramed = user!.onHead(head)
    if (this.user !== user) return -1
    this.body.begin(length, isFramed)
    return at
  }

  private readBody(bytes: Buffer, from: number, end: number): void {
    const { body, user } = this
    const at = body.isDone ? from : body.read(bytes, from, end, this)
    if (this.user !== user) return
    if (at === malformed) this.fail(new MalformedError(badChunks))
    else if (body.isDone) this.finish(at === end)
    else user!.onTurn()
  }

  onBody(bytes: Buffer, from: number, to: number): void {
    this.user?.onData(bytes, from, to)
  }

  /** `isClean`: no bytes followed it. */
  private finish(isClean: boolean): void {
    const { user, body } = this
    const trailers = body.trailers
    this.user = null
    this.isInBody = false
    this.limit(0)
    if (isClean && this.isSent && this.stays()) {
      this.resume()
      this.owner.release(this)
    } else this.destroy()
    user!.onEnd(trailers)
  }

  /** It announces how long it may wait for the next request. */
  private stays(): boolean {
    const { head, owner } = this
    if (!head.staysOpen) return false
    const hintMs = hintMsOf(head.keepAlive)
    const ms = hintMs === null ? owner.idleMs : Math.min(owner.longestIdleMs, hintMs - hintMarginMs)
    if (ms <= 0) return false
    this.lateAt = performance.now() + ms
    return true
  }

  private onPeerEnd(): void {
    if (this.user === null || !this.isInBody || !this.body.endsWithConnection) return void this.fail(new ClosedError())
    this.body.finish()
    this.finish(false)
  }

  /** Ends it because of this error. */
  private fail(error: Error, isOurs = false): -1 {
    const { user } = this
    this.user = null
    this.close(isOurs)
    user?.onFailure(error)
    return -1
  }

  /** It is sound, but not needed. */
  destroy(): void {
    this.close(true)
  }

  private close(isOurs: boolean): void {
    if (!sweep.all.has(this)) return
    sweep.delete(this)
    this.limit(0)
    this.held = null
    this.socket.destroy()
    this.owner.forget(this, isOurs || !this.isConnected)
  }
}

interface PoolOptions {
  target: Target
  idleMs: number
  /** The idle time that programs announce counts, up to this. */
  longestIdleMs: number
  /** A connection that was established has ended, and not because of us. */
  onLost(): void
}

export const createTargetPool = ({ target, idleMs, longestIdleMs, onLost }: PoolOptions): TargetPool => {
  /** The most recently used one is taken first: superfluous ones expire. */
  const free: TargetConnection[] = []
  let isClosed = false
  const owner: Owner = {
    ...{ target, idleMs, longestIdleMs },
    release(connection) {
      if (isClosed) connection.destroy()
      else free.push(connection)
    },
    forget(connection, isOurs) {
      const at = free.indexOf(connection)
      if (at >= 0) free.splice(at, 1)
      if (!isOurs) onLost()
    },
  }
  return {
    ask(user) {
      for (let next = free.pop(); next !== undefined; next = free.pop()) {
        if (next.take(user)) return next
        next.destroy()
      }
      return new TargetConnection(owner, user)
    },
    close() {
      isClosed = true
      for (const connection of free.splice(0)) connection.destroy()
    },
  }
}
