/** The look of the components. Their styles are files: the policy of the page allows none in the document. */
import { createTheme, Menu, Modal, Select, Tooltip } from '@mantine/core'

export const theme = createTheme({
  defaultRadius: 'md',
  focusRing: 'auto',
  respectReducedMotion: true,
  components: {
    Modal: Modal.extend({
      defaultProps: { lockScroll: false, centered: true, overlayProps: { backgroundOpacity: 0.4 } },
    }),
    Menu: Menu.extend({ defaultProps: { shadow: 'md', position: 'bottom-start', transitionProps: { duration: 80 } } }),
    Select: Select.extend({ defaultProps: { allowDeselect: false, checkIconPosition: 'right' } }),
    Tooltip: Tooltip.extend({ defaultProps: { openDelay: 350, withArrow: true, transitionProps: { duration: 80 } } }),
  },
})
