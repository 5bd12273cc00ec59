/** The bytes allowed in each part of an HTTP/1.1 message: one table each, by byte. */
const tableOf = (pattern: RegExp): Uint8Array =>
  Uint8Array.from({ length: 256 }, (_, code) => Number(pattern.test(String.fromCharCode(code))))

/** In methods and in names of headers. */
export const isToken = tableOf(/[!#$%&'*+.^_`|~0-9A-Za-z-]/)
/** In values of headers: everything except control characters; a tab is allowed. */
export const isValue = tableOf(/[\t\x20-\x7e\x80-\xff]/)
/**
 * In a request's target: all visible ASCII characters except `#`, after which programs read differently; and non-ASCII
 * bytes, which many clients send unencoded (`/café`) and programs treat as their encoded form.
 */
export const isTarget = tableOf(/[!"$-~\x80-\xff]/)
/** The hexadecimal digit of a byte; 255 for none. */
export const hexDigits = Uint8Array.from({ length: 256 }, (_, code) => {
  const digit = Number.parseInt(String.fromCharCode(code), 16)
  return Number.isNaN(digit) ? 255 : digit
})

export const tab = 9
export const lineFeed = 10
export const carriageReturn = 13
export const space = 32
export const colon = 58
export const semicolon = 59
