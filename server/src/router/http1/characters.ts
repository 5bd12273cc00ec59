/** Which bytes may be part of what in a message of HTTP/1.1: one table each, by byte. */
const tableOf = (pattern: RegExp): Uint8Array =>
  Uint8Array.from({ length: 256 }, (_, code) => Number(pattern.test(String.fromCharCode(code))))

/** Of methods and of names of headers. */
export const isToken = tableOf(/[!#$%&'*+.^_`|~0-9A-Za-z-]/)
/** Of values of headers: everything but control characters; a tab is allowed. */
export const isValue = tableOf(/[\t\x20-\x7e\x80-\xff]/)
/**
 * Of a request's target: everything of ASCII that is visible, but for `#`, behind which programs read differently; and
 * bytes that are not ASCII, which many clients send unencoded (`/café`) and programs take for their encoded form.
 */
export const isTarget = tableOf(/[!"$-~\x80-\xff]/)
/** The digit that a byte is in base 16; 255 for none. */
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
