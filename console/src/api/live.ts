/** Reads again what changes in the open organization, by any client: one stream per page, no polling. */
import { useQueryClient } from '@tanstack/react-query'
import { useMemo } from 'react'
import { type Change, concerns, isApart } from './changes.ts'
import { createRefresher } from './refresh.ts'
import { useStream } from './stream.ts'

interface Frame {
  /** Data that was read before may be stale. */
  refetch: boolean
  changes: Change[]
}

/** Follows an organization while a page of it is shown. */
export const useLiveOrganization = (organizationId: string | undefined): void => {
  const queries = useQueryClient()
  const refresher = useMemo(() => createRefresher(queries), [queries])
  useStream<Frame>(organizationId === undefined ? null : `/organization/${organizationId}/changes`, {
    onMessage({ refetch, changes }) {
      if (refetch) refresher.refresh((query) => !isApart(query))
      for (const change of changes) refresher.refresh(concerns(change, organizationId!))
    },
  })
}
