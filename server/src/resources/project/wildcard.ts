/**
 * Whether a name matches a pattern, ignoring case: `*` matches any text, `?` one character. Pure; takes at most time
 * proportional to the product of the lengths, which a regular expression does not promise. An empty pattern matches no
 * name.
 */
export const fitsWildcard = (pattern: string, name: string): boolean => {
  const [wanted, text] = [[...pattern.toLowerCase()], [...name.toLowerCase()]]
  let [at, read] = [0, 0]
  let [star, resume] = [-1, 0]
  while (read < text.length) {
    if (wanted[at] === '*') {
      star = at++
      resume = read
    } else if (at < wanted.length && (wanted[at] === '?' || wanted[at] === text[read])) {
      at++
      read++
    } else if (star >= 0) {
      at = star + 1
      read = ++resume
    } else return false
  }
  while (wanted[at] === '*') at++
  return at === wanted.length && wanted.length > 0
}
