/** Whether an address is on this machine or its own network, where plain http may carry a password. */
import { parseAddress, parseAllowList, refuseAddress, targetOf } from './address-policy.ts'
import type { Outbound } from './outbound.ts'

const nothingAllowed = parseAllowList([])

/** True if outgoing requests reach this address only when it is allowed. `checked` is the address of the URL's host. */
export const isPrivateAddress = (checked: string, url: URL): boolean => {
  const address = parseAddress(checked)
  return address !== undefined && refuseAddress(address, targetOf(url), nothingAllowed) !== null
}

/** The same for an address that is looked up first; rejects like `check`. */
export const isPrivateHost = async (outbound: Outbound, url: URL): Promise<boolean> =>
  isPrivateAddress((await outbound.check(url)).address, url)
