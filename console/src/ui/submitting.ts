import type { FormEvent } from 'react'

/** What a form does when it is submitted, in place of what a browser would do. */
export const submitting =
  (work: () => void) =>
  (event: FormEvent): void => {
    event.preventDefault()
    work()
  }
