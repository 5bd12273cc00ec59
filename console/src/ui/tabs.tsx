/** The sections of a page: links, so that each has its address. */
import { Link } from '@tanstack/react-router'
import { type RefObject, useLayoutEffect, useRef } from 'react'

/** On a phone the sections are wider than the page: the current one is scrolled to. */
export const useCurrentInView = (at: string): RefObject<HTMLElement | null> => {
  const nav = useRef<HTMLElement>(null)
  // biome-ignore lint/correctness/useExhaustiveDependencies: another section is the current one
  useLayoutEffect(() => {
    const box = nav.current
    const current = box?.querySelector<HTMLElement>('[aria-current="page"]')
    if (box == null || current == null) return
    const [outer, inner] = [box.getBoundingClientRect(), current.getBoundingClientRect()]
    box.scrollLeft += inner.left - outer.left - (outer.width - inner.width) / 2
  }, [at])
  return nav
}

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
}) => {
  const nav = useCurrentInView(at)
  return (
    <nav className="tabs" aria-label={label} ref={nav}>
      {Object.entries(sections).map(([section, word]) => (
        <Link key={section} to={`${base}/${section}` as string} aria-current={section === at ? 'page' : undefined}>
          {word}
        </Link>
      ))}
    </nav>
  )
}
