/** What is wider than its place and scrolls in it: by keyboard too, and only then a stop for Tab. */
import { type ReactNode, useLayoutEffect, useRef, useState } from 'react'

interface Props {
  /** What it holds. */
  label: string
  className?: string
  children: ReactNode
}

export const Scroll = ({ label, className = 'card scroll', children }: Props) => {
  const place = useRef<HTMLElement>(null)
  const [isWide, setWide] = useState(false)
  useLayoutEffect(() => {
    const box = place.current!
    const look = (): void => setWide(box.scrollWidth > box.clientWidth)
    const observer = new ResizeObserver(look)
    observer.observe(box)
    for (const each of box.children) observer.observe(each)
    return () => observer.disconnect()
  }, [])
  return (
    <section ref={place} className={className} aria-label={label} tabIndex={isWide ? 0 : undefined}>
      {children}
    </section>
  )
}
