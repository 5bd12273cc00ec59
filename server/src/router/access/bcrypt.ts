/** bcrypt, which Node lacks: what `htpasswd -B` writes. Slow on purpose, so only for the password thread. */

const alphabet = './ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'
const words = 18 + 4 * 256

/** The fractional digits of pi, which Blowfish begins with, in words of 32 bits: Machin's formula on integers. */
const digitsOfPi = (): Uint32Array => {
  const guard = 64n
  const bits = BigInt(32 * words)
  const one = 1n << (bits + guard)
  const arctan = (inverse: bigint): bigint => {
    const square = inverse * inverse
    let power = one / inverse
    let sum = power
    for (let divisor = 3n, sign = -1n; power > 0n; divisor += 2n, sign = -sign) {
      power /= square
      sum += (sign * power) / divisor
    }
    return sum
  }
  const pi = 16n * arctan(5n) - 4n * arctan(239n)
  const hex = ((pi >> guard) & ((1n << bits) - 1n)).toString(16).padStart(8 * words, '0')
  return Uint32Array.from({ length: words }, (_, index) => Number.parseInt(hex.slice(8 * index, 8 * index + 8), 16))
}

let pi: Uint32Array | undefined

interface State {
  p: Uint32Array
  s: Uint32Array
}

/** Encrypts the block at `at` in place. */
const encipher = ({ p, s }: State, block: Uint32Array, at: number): void => {
  let left = block[at]! ^ p[0]!
  let right = block[at + 1]!
  for (let round = 1; round <= 16; round += 2) {
    right ^=
      (((s[left >>> 24]! + s[256 + ((left >>> 16) & 255)]!) ^ s[512 + ((left >>> 8) & 255)]!) +
        s[768 + (left & 255)]!) ^
      p[round]!
    left ^=
      (((s[right >>> 24]! + s[256 + ((right >>> 16) & 255)]!) ^ s[512 + ((right >>> 8) & 255)]!) +
        s[768 + (right & 255)]!) ^
      p[round + 1]!
  }
  block[at] = right ^ p[17]!
  block[at + 1] = left
}

/** Words that bytes give when read over and over. */
const wordsOf = (bytes: Uint8Array, count: number): Uint32Array =>
  Uint32Array.from({ length: count }, (_, index) => {
    let word = 0
    for (let byte = 0; byte < 4; byte++) word = (word << 8) | bytes[(4 * index + byte) % bytes.length]!
    return word >>> 0
  })

const expand = (state: State, key: Uint32Array, salt: Uint32Array): void => {
  const { p, s } = state
  for (let index = 0; index < 18; index++) p[index]! ^= key[index]!
  const block = new Uint32Array(2)
  let turn = 0
  for (const table of [p, s])
    for (let index = 0; index < table.length; index += 2) {
      block[0]! ^= salt[turn % 4]!
      block[1]! ^= salt[(turn + 1) % 4]!
      turn += 2
      encipher(state, block, 0)
      table[index] = block[0]!
      table[index + 1] = block[1]!
    }
}

const decode = (text: string, count: number): Uint8Array => {
  const bytes = new Uint8Array(count)
  let held = 0
  let bits = 0
  let at = 0
  for (const character of text) {
    held = (held << 6) | alphabet.indexOf(character)
    bits += 6
    if (bits < 8 || at === count) continue
    bits -= 8
    bytes[at++] = (held >>> bits) & 255
    held &= (1 << bits) - 1
  }
  return bytes
}

/** The 23 bytes that a hash `$2y$05$<salt><these>` must end with for this password; and those it ends with. */
export const bcrypt = (hash: string, password: string): { wanted: Uint8Array; made: Uint8Array } => {
  pi ??= digitsOfPi()
  const key = wordsOf(Buffer.from(`${password}\0`).subarray(0, 72), 18)
  const saltBytes = decode(hash.slice(7, 29), 16)
  const salt = wordsOf(saltBytes, 4)
  const longSalt = wordsOf(saltBytes, 18)
  const nothing = new Uint32Array(4)
  const state: State = { p: pi.slice(0, 18), s: pi.slice(18) }
  expand(state, key, salt)
  for (let left = 2 ** Number(hash.slice(4, 6)); left > 0; left--) {
    expand(state, key, nothing)
    expand(state, longSalt, nothing)
  }
  const text = wordsOf(Buffer.from('OrpheanBeholderScryDoubt'), 6)
  for (let at = 0; at < 6; at += 2) for (let turn = 0; turn < 64; turn++) encipher(state, text, at)
  const made = Buffer.alloc(24)
  for (const [index, word] of text.entries()) made.writeUInt32BE(word, 4 * index)
  return { wanted: decode(hash.slice(29), 23), made: made.subarray(0, 23) }
}
