/** Starts the console. */

import { MantineProvider } from '@mantine/core'
import { QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { createRoot } from 'react-dom/client'
import { queryClient } from './api/queries.ts'
import { onKey, readKey } from './api/session-key.ts'
import { router } from './router.tsx'
import './components.css'
import './styles.css'
import { theme } from './theme.ts'

// Whoever signs out, here or in another tab, leaves nothing on the screen.
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
