/** Name of an image without its tag, and the tag or digest after it; `latest` where it has none. */
export const splitTag = (image: string): { name: string; tag: string } => {
  const at = image.indexOf('@')
  if (at !== -1) return { name: image.slice(0, at), tag: image.slice(at + 1) }
  const colon = image.lastIndexOf(':')
  return colon > image.lastIndexOf('/')
    ? { name: image.slice(0, colon), tag: image.slice(colon + 1) }
    : { name: image, tag: 'latest' }
}

/** `name:tag`, or `name@sha256:…` for a digest. */
export const joinTag = (name: string, tag: string): string => `${name}${tag.includes(':') ? '@' : ':'}${tag}`
