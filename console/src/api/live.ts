/** Whatever changes in the organization that is open, by whomever, is read again: one stream a page, no polling. */
import { useQueryClient } from '@tanstack/react-query'
import { useMemo } from 'react'
import { type Change, concerns, isApart } from './changes.ts'
import { createRefresher } from './refresh.ts'
import { useStream } from './stream.ts'

interface Frame {
  /** What was read before may be old. */
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
