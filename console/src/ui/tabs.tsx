/** The sections of a page: links, so that each has its address. */
import { Link } from '@tanstack/react-router'

export const Tabs = ({
  base,
  at,
  sections,
  label,
}: {
  base: string
  at: string
  sections: Record<string, string>
  label: string
}) => (
  <nav className="tabs" aria-label={label}>
    {Object.entries(sections).map(([section, word]) => (
      <Link key={section} to={`${base}/${section}` as string} aria-current={section === at ? 'page' : undefined}>
        {word}
      </Link>
    ))}
  </nav>
)
