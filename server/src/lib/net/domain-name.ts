import { domainToASCII } from 'node:url'

// At these, a URL parser ends the host, decodes it, or skips them: the text is not that host name.
const notOfHosts = /[\p{Cc}\s%/\\?#@:[\]]/u

/** The normalized form of a host name; empty for other texts. */
export const hostName = (text: string): string => (notOfHosts.test(text) ? '' : domainToASCII(text))

/** The normalized form of a domain below which there can be names; else what it must be. */
export const domainName = (value: string): { value: string } | string => {
  const name = hostName(value.replace(/\.$/, ''))
  const labels = name.split('.')
  const fits = labels.every((label) => /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(label)) && name.length <= 190
  return fits && labels.length > 1 && !/^\d+$/.test(labels.at(-1)!)
    ? { value: name }
    : 'a domain name, such as apps.example.com'
}
