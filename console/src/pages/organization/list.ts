/** Reads lists of an organization. */
import { useQuery } from '@tanstack/react-query'

export interface Props {
  organizationId: string
}

export const useOrganizationList = <Row>(
  name: string,
  organizationId: string,
  ask: () => Promise<{ results: Row[] }>,
  /** True if the caller may read it. */
  enabled = true,
) => useQuery({ queryKey: [name, organizationId], queryFn: async () => (await ask()).results, enabled })
