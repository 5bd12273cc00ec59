/** A host, an address or a path: if it is too long, it breaks after a sign, not within a word. */
import { Fragment } from 'react'

export const Breakable = ({ text }: { text: string }) =>
  text.split(/(?<=[./:@])(?=\w)/).map((part, index) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a text have no other name
    <Fragment key={index}>
      {index === 0 ? null : <wbr />}
      {part}
    </Fragment>
  ))
