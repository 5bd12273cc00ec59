/** One time limit at a time; most are never reached, so only setting and clearing cost something. */
export class Timer {
  private timer: NodeJS.Timeout | undefined

  /** 0: no limit. */
  set(ms: number, onReached: () => void): this {
    this.clear()
    if (ms > 0) this.timer = setTimeout(onReached, ms)
    return this
  }

  clear(): void {
    if (this.timer === undefined) return
    clearTimeout(this.timer)
    this.timer = undefined
  }
}
