/** Whether an address is on this machine or its own network, where plain http may carry a password. */
import { parseAddress, parseAllowList, refuseAddress, targetOf } from './address-policy.ts'
import type { Outbound } from './outbound.ts'

const nothingAllowed = parseAllowList([])

/** True for what outgoing requests reach by permission only. Rejects as `check` does. */
export const isNear = async (outbound: Outbound, url: URL): Promise<boolean> => {
  const address = parseAddress((await outbound.check(url)).address)
  return address !== undefined && refuseAddress(address, targetOf(url), nothingAllowed) !== null
}
