/**
 * console/build.ts <folder> <key>: builds the console into a folder, which appears whole, with each file also compressed.
 * The key says of which sources it is (bin/ready.sh).
 */
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'
import react from '@vitejs/plugin-react'
import { build } from 'vite'
import { schemasPlugin } from './schemas.ts'

const home = fileURLToPath(new URL('.', import.meta.url))
const [, , folder, key = ''] = process.argv
if (folder === undefined) throw new Error('which folder?')
const place = resolve(folder)
const half = join(dirname(place), `.dist-${process.pid}`)
const old = `${half}-old`

const compressible = /\.(js|css|html|svg)$/

const compress = (within: string): void => {
  for (const name of readdirSync(within).filter((each) => compressible.test(each))) {
    const bytes = readFileSync(join(within, name))
    const options = {
      params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length },
    }
    writeFileSync(join(within, `${name}.br`), brotliCompressSync(bytes, options))
    writeFileSync(join(within, `${name}.gz`), gzipSync(bytes, { level: 9 }))
  }
}

try {
  await build({
    root: home,
    configFile: false,
    logLevel: 'warn',
    plugins: [react(), schemasPlugin],
    build: {
      outDir: half,
      emptyOutDir: true,
      assetsDir: 'assets',
      // The policy of the page allows no inline content.
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      reportCompressedSize: false,
      target: 'es2023',
      manifest: true,
      cssCodeSplit: false,
    },
  })
  compress(half)
  compress(join(half, 'assets'))
  writeFileSync(join(half, 'built-from'), key)
  mkdirSync(dirname(place), { recursive: true })
  try {
    renameSync(place, old)
  } catch {
    // The first build.
  }
  renameSync(half, place)
} finally {
  for (const each of [half, old]) rmSync(each, { recursive: true, force: true })
}
