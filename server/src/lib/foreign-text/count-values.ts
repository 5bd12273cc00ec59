/**
 * How many values a JSON text has, and how deeply they are nested, found without parsing it: one pass over its
 * characters that allocates nothing. Strings are skipped, whatever is in them. Says nothing about whether the text is
 * valid. Pure.
 */

export interface ValueBounds {
  /** Values of all kinds together; names of fields are not counted. */
  mostValues: number
  /** Lists and objects inside one another. */
  mostDepth: number
}

const [quote, comma, backslash] = [0x22, 0x2c, 0x5c]
const [openList, closeList, openObject, closeObject] = [0x5b, 0x5d, 0x7b, 0x7d]

/** Where the string that begins at `start` ends; the end of the text for one that does not. */
const endOfString = (text: string, start: number): number => {
  let end = text.indexOf('"', start + 1)
  while (end !== -1) {
    let before = end
    while (text.charCodeAt(before - 1) === backslash) before -= 1
    if ((end - before) % 2 === 0) return end
    end = text.indexOf('"', end + 1)
  }
  return text.length
}

/** Which bound the text exceeds; null if none. Stops at the first. */
export const findExcess = (text: string, { mostValues, mostDepth }: ValueBounds): 'values' | 'depth' | null => {
  // Two characters make one value at most.
  if (text.length <= 2 * mostValues && text.length <= mostDepth) return null
  // A list or an object has one value more than commas, unless it is empty.
  let values = 1
  let depth = 0
  let opened = -1
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index)
    if (code === quote) index = endOfString(text, index)
    else if (code === comma) {
      values += 1
      if (values > mostValues) return 'values'
    } else if (code === openList || code === openObject) {
      values += 1
      depth += 1
      opened = index
      if (depth > mostDepth) return 'depth'
    } else if (code === closeList || code === closeObject) {
      depth -= 1
      if (opened === index - 1) values -= 1
    }
  }
  return values > mostValues ? 'values' : null
}
