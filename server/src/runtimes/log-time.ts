/** Times of lines in one form. */

/** RFC 3339 → UTC with nine digits, so that times compare as texts. */
export const normalizeTime = (text: string): string => {
  const digits = /\.(\d{1,9})/.exec(text)?.[1] ?? ''
  return `${new Date(text).toISOString().slice(0, 19)}.${digits.padEnd(9, '0')}Z`
}
