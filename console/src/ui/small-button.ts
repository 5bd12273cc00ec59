import { Button } from '@mantine/core'

/** The button of a row or of a heading. */
export const SmallButton = Button.withProps({ size: 'compact-sm', variant: 'default' })
