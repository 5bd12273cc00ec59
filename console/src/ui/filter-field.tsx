/**
 * A field to filter or search by. The typed text is shown at once; the list, or the address, follows after a short
 * pause in the typing, not with each letter.
 */
import { TextInput, type TextInputProps } from '@mantine/core'
import { useEffect, useRef, useState } from 'react'
import { Icon } from './icons.tsx'

const restMs = 100

interface Props extends Pick<TextInputProps, 'size' | 'placeholder' | 'style'> {
  label: string
  value: string
  onChange(value: string): void
}

export const FilterField = ({ label, value, onChange, placeholder = 'Filter', size = 'sm', style }: Props) => {
  const [text, setText] = useState(value)
  /** Values that were reported and may come back, oldest first: the address changes a moment later. */
  const told = useRef([value])
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  useEffect(() => {
    const at = told.current.indexOf(value)
    if (at !== -1) {
      told.current = told.current.slice(at)
      return
    }
    // The value was changed elsewhere: by a link, or the back button.
    clearTimeout(timer.current)
    told.current = [value]
    setText(value)
  }, [value])
  useEffect(() => () => clearTimeout(timer.current), [])
  const change = (next: string): void => {
    setText(next)
    clearTimeout(timer.current)
    timer.current = setTimeout(() => {
      told.current.push(next)
      onChange(next)
    }, restMs)
  }
  return (
    <TextInput
      className="filter"
      size={size}
      aria-label={label}
      placeholder={placeholder}
      leftSection={<Icon name="search" size={size === 'xs' ? 13 : 14} />}
      value={text}
      onChange={(event) => change(event.currentTarget.value)}
      {...(style === undefined ? {} : { style })}
    />
  )
}
