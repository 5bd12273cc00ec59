/** Why untrusted text was not read. */
export class ForeignTextError extends Error {
  /**
   * `malformed`: it is not JSON. `too_large`, `too_many_values`, `too_deep`: it exceeds a bound, also that of the memory of
   * a thread. `too_slow`: it could not be read in time.
   */
  readonly code: 'malformed' | 'too_large' | 'too_many_values' | 'too_deep' | 'too_slow'

  /** `message`: the end of a sentence whose subject is the text. */
  constructor(code: ForeignTextError['code'], message: string) {
    super(message)
    this.name = 'ForeignTextError'
    this.code = code
  }
}
