import { inspect } from 'node:util'

/**
 * A value that never serializes: JSON omits it, strings and `inspect` show `[secret]`. Only the code that passes it to
 * its destination calls `reveal`.
 */
export class Secret<T = string> {
  readonly #value: T

  constructor(value: T) {
    this.#value = value
  }

  reveal(): T {
    return this.#value
  }

  toJSON(): undefined {
    return undefined
  }

  toString(): string {
    return '[secret]'
  }

  [inspect.custom](): string {
    return '[secret]'
  }
}
