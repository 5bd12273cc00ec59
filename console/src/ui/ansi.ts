/**
 * The colors of a line, as spans of classes. All other escape sequences are removed: they can move the cursor or set
 * titles, and a page has neither. The rest is shown as text.
 */
interface Span {
  text: string
  className: string
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const sequence = /\u001b(?:\[([0-9;]*)m|\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const control = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g

const plain = new Set(['1', '2', '3', '4'])

const apply = (held: Set<string>, codes: string): void => {
  for (const code of codes === '' ? ['0'] : codes.split(';').map((each) => String(Number(each)))) {
    if (code === '0') held.clear()
    else if (plain.has(code)) held.add(`a${code}`)
    else {
      const number = Number(code) >= 90 ? Number(code) - 60 : Number(code)
      if (number < 30 || number > 39) continue
      for (const name of held) if (/^a3\d$/.test(name)) held.delete(name)
      if (number < 38) held.add(`a${number}`)
    }
  }
}

/** Longer lines are cut: a browser lays out a megabyte on one line for seconds. */
const longest = 10_000
/** After so many changes of color the last one is kept: each is an element of the page. */
const mostSpans = 200

export const spansOf = (line: string): Span[] => {
  const text = line.length > longest ? `${line.slice(0, longest)} … (${line.length - longest} more characters)` : line
  const spans: Span[] = []
  const held = new Set<string>()
  let from = 0
  const add = (until: number): void => {
    const part = text.slice(from, until).replace(control, '')
    if (part === '') return
    const className = [...held].join(' ')
    const last = spans.at(-1)
    if (last !== undefined && (last.className === className || spans.length >= mostSpans)) last.text += part
    else spans.push({ text: part, className })
  }
  for (const match of text.matchAll(sequence)) {
    add(match.index)
    if (match[1] !== undefined) apply(held, match[1])
    from = match.index + match[0].length
  }
  add(text.length)
  return spans
}

export const textOf = (line: string): string =>
  spansOf(line)
    .map(({ text }) => text)
    .join('')
