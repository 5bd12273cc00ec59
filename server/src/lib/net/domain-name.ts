import { domainToASCII } from 'node:url'

/** The normalized form of a domain below which there can be names; else what it must be. */
export const domainName = (value: string): { value: string } | string => {
  const name = domainToASCII(value.replace(/\.$/, ''))
  const labels = name.split('.')
  const fits = labels.every((label) => /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(label)) && name.length <= 190
  return fits && labels.length > 1 && !/^\d+$/.test(labels.at(-1)!)
    ? { value: name }
    : 'a domain name, such as apps.example.com'
}
