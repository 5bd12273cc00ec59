import { domainToASCII } from 'node:url'

// At these, a parser of URLs stops reading the host, decodes it, or passes over them: what was meant is not that name.
const notOfHosts = /[\p{Cc}\s%/\\?#@:[\]]/u

/** The normalized form of a host name; empty for text that is none. */
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
