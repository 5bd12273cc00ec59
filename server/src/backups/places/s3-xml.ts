/**
 * The few elements that are read of an S3 storage's answers, and written to it. Elements of other names are passed over.
 * Takes time in proportion to the text, whatever is in it. Pure.
 */

const entities: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" }

const decode = (text: string): string => text.replace(/&(amp|lt|gt|quot|apos);/g, (_, name: string) => entities[name]!)

export const encode = (text: string): string => text.replace(/[&<>"']/g, (each) => `&#${each.charCodeAt(0)};`)

/** The text of the first element of this name. */
export const textOf = (xml: string, name: string): string | undefined => {
  const found = new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml)?.[1]
  return found === undefined ? undefined : decode(found)
}

/** What is inside each element of this name; an element in one of the same name is not found. */
export function* elementsOf(xml: string, name: string): Generator<string> {
  const [opening, closing] = [`<${name}>`, `</${name}>`]
  for (let at = xml.indexOf(opening); at !== -1; ) {
    const end = xml.indexOf(closing, at)
    if (end === -1) return
    yield xml.slice(at + opening.length, end)
    at = xml.indexOf(opening, end)
  }
}
