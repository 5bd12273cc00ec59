import type { ReactNode } from 'react'

interface Props {
  /** What is in it. */
  label: string
  isCard?: boolean
  children: ReactNode
}

/** What may be wider than the window scrolls by itself, by keyboard too. */
export const Scroll = ({ label, isCard = false, children }: Props) => (
  // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls can be scrolled by keyboard
  <section className={isCard ? 'card scroll' : 'scroll'} tabIndex={0} aria-label={label}>
    {children}
  </section>
)
