/** What belongs to an organization: people and their roles, tokens, webhooks, clusters, and what was done by whom. */
import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { Problem } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { Failure } from '../../ui/notices.tsx'
import { Tabs } from '../../ui/tabs.tsx'
import { Audit } from './audit.tsx'
import { Clusters } from './clusters.tsx'
import type { Props } from './list.tsx'
import { Members } from './members.tsx'
import { Roles } from './roles.tsx'
import { Tokens } from './tokens.tsx'
import { Webhooks } from './webhooks.tsx'

const sections = {
  members: 'Members',
  roles: 'Roles',
  tokens: 'API tokens',
  webhooks: 'Webhooks',
  clusters: 'Clusters',
  audit: 'Audit log',
}

const pages: Record<string, (props: Props) => ReactNode> = {
  members: Members,
  roles: Roles,
  tokens: Tokens,
  webhooks: Webhooks,
  clusters: Clusters,
  audit: Audit,
}

export const Organization = () => {
  const { organizationId, section } = useParams({ from: '/frame/o/$organizationId/$section' })
  const { data } = useQuery(read.organizations())
  const name = data?.find(({ id }) => id === organizationId)?.name
  read.useTitle(sections[section as keyof typeof sections], name)
  const Page = pages[section]
  if (Page === undefined) return <Failure error={new Problem(404, {})} />
  return (
    <>
      <div className="head">
        <h1>{name ?? 'Organization'}</h1>
      </div>
      <Tabs base={`/o/${organizationId}`} at={section} sections={sections} label="Of this organization" />
      <Page key={organizationId} organizationId={organizationId} />
    </>
  )
}
