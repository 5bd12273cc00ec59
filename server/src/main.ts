/**
 * `npm start`: the control plane in the foreground. This file only turns on Node's compile cache, which saves a third of
 * a second at each later start; what happens is in serve.ts.
 */
import { enableCompileCache } from 'node:module'
import { fileURLToPath } from 'node:url'

enableCompileCache(fileURLToPath(new URL('../../node_modules/.cache/slipway', import.meta.url)))
const { serve } = await import('./programs/serve.ts')
await serve()
