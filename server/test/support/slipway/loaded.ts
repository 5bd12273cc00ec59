/** Imported into a server: writes down the address of each module that it loads, to the file of SLIPWAY_TEST_LOADED. */
import { appendFileSync } from 'node:fs'
import { registerHooks } from 'node:module'

const file = process.env.SLIPWAY_TEST_LOADED!

registerHooks({
  load(url, context, next) {
    appendFileSync(file, `${url}\n`)
    return next(url, context)
  },
})
