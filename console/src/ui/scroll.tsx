/** What is wider than its place and scrolls in it: by keyboard too, and only then a stop for Tab. */
import { type ReactNode, useLayoutEffect, useRef, useState } from 'react'

interface Props {
  /** What is in it. */
  label: string
  isCard?: boolean
  children: ReactNode
}

export const Scroll = ({ label, isCard = false, children }: Props) => {
  const place = useRef<HTMLElement>(null)
  const [isWide, setWide] = useState(false)
  useLayoutEffect(() => {
    const box = place.current!
    const observer = new ResizeObserver(() => setWide(box.scrollWidth > box.clientWidth))
    observer.observe(box)
    for (const each of box.children) observer.observe(each)
    return () => observer.disconnect()
  }, [])
  return (
    <section
      ref={place}
      className={isCard ? 'card scroll' : 'scroll'}
      aria-label={label}
      tabIndex={isWide ? 0 : undefined}
    >
      {children}
    </section>
  )
}
