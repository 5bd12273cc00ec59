/** Content that is wider than its box and scrolls in it: by keyboard too, and only then it can be reached with Tab. */
import { type ReactNode, useLayoutEffect, useRef, useState } from 'react'

interface Props {
  /** The name of its content. */
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
