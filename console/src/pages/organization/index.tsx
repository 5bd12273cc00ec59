/** The settings of an organization: people and their rights, clusters, sources, webhooks, and the audit log. */
import { useQuery } from '@tanstack/react-query'
import { Link, useParams } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { Problem } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { Failure } from '../../ui/notices.tsx'
import { sectionsFor, sectionWords } from '../../ui/organization-sections.ts'
import { useCurrentInView } from '../../ui/tabs.tsx'
import { Audit } from './audit.tsx'
import { Clusters } from './clusters.tsx'
import { Credentials } from './credentials.tsx'
import { General } from './general.tsx'
import type { Props } from './list.ts'
import { Members } from './members.tsx'
import { PushHooks } from './push-hooks.tsx'
import { Roles } from './roles.tsx'
import { Charts, GitTokens, Labels, Registries } from './sources.tsx'
import { System } from './system.tsx'
import { Tokens } from './tokens.tsx'
import { Usage } from './usage.tsx'
import { Webhooks } from './webhooks.tsx'

const pages: Record<string, (props: Props) => ReactNode> = {
  general: General,
  members: Members,
  roles: Roles,
  tokens: Tokens,
  clusters: Clusters,
  credentials: Credentials,
  registries: Registries,
  charts: Charts,
  git: GitTokens,
  pushes: PushHooks,
  webhooks: Webhooks,
  labels: Labels,
  audit: Audit,
  usage: Usage,
  system: System,
}

const Sections = ({ organizationId, at }: Props & { at: string }) => {
  const nav = useCurrentInView(at)
  const { data: session } = useQuery(read.session())
  return (
    <nav className="side" aria-label="Of this organization" ref={nav}>
      {Object.entries(sectionsFor(session?.is_operator === true)).map(([group, sections]) => (
        <div key={group} className="side-group">
          <span className="side-title dim small">{group}</span>
          {Object.entries(sections).map(([section, word]) => (
            <Link
              key={section}
              to="/o/$organizationId/$section"
              params={{ organizationId, section }}
              aria-current={section === at ? 'page' : undefined}
            >
              {word}
            </Link>
          ))}
        </div>
      ))}
    </nav>
  )
}

export const Organization = () => {
  const { organizationId, section } = useParams({ from: '/frame/o/$organizationId/$section' })
  const { data } = useQuery(read.organizations())
  const name = data?.find(({ id }) => id === organizationId)?.name
  read.useTitle(sectionWords[section], name)
  const Page = pages[section]
  if (Page === undefined) return <Failure error={new Problem(404, {})} />
  return (
    <>
      <div className="head">
        <h1>{name ?? 'Organization'}</h1>
      </div>
      <div className="sides">
        <Sections organizationId={organizationId} at={section} />
        <section className="stack" aria-label={sectionWords[section]}>
          <Page key={`${organizationId} ${section}`} organizationId={organizationId} />
        </section>
      </div>
    </>
  )
}
