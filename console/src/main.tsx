/** Starts the console. */
import { createTheme, MantineProvider, Menu, Modal, Select, Tooltip } from '@mantine/core'
import { QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { createRoot } from 'react-dom/client'
import { queryClient } from './api/queries.ts'
import { onKey, readKey } from './api/session-key.ts'
import './components.css'
import { router } from './router.tsx'
import './styles.css'

/** The look of the components. Their styles are files: the policy of the page allows none in the document. */
const theme = createTheme({
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

// Signing out, here or in another tab, clears the screen.
onKey(() => {
  queryClient.clear()
  if (readKey() === null && !location.pathname.startsWith('/sign-in'))
    void router.navigate({ to: '/sign-in', search: { to: location.pathname + location.search } })
})

createRoot(document.getElementById('root')!).render(
  <MantineProvider theme={theme} defaultColorScheme="auto" withCssVariables={false} withGlobalClasses={false}>
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </MantineProvider>,
)
