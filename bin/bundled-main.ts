/**
 * `main.cjs` of the bundle: runs `server.cjs` beside it with what V8 made of it before, so that a start compiles next
 * to nothing; Node's own compile cache lacks every function that is not called at once. `--prepare` makes `server.code`
 * from what loading the server calls; after the first start, `started.code` has what a start calls too.
 *
 * Without these files, or with those of another version, which V8 refuses, everything is compiled.
 */
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { constants, Script } from 'node:vm'

interface Server {
  serve(): Promise<void>
}

const file = join(__dirname, 'server.cjs')
const preparedCode = join(__dirname, 'server.code')
const startedCode = join(__dirname, 'started.code')
const keepAfterMs = 5000

const readCode = (): Buffer | undefined => {
  for (const path of [startedCode, preparedCode])
    try {
      return readFileSync(path)
    } catch {
      // The next one; where the folder cannot be written to, there is only that of the bundle.
    }
  return undefined
}

/** Frees megabytes at once: the garbage collector would do so much later. Small buffers share their memory. */
const letGo = ({ buffer, byteLength }: Buffer): void => {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0)
}

const filename = pathToFileURL(file).href

const compile = (): Script => {
  const text = readFileSync(file)
  const code = readCode()
  const script = new Script(text.toString('latin1'), {
    filename,
    cachedData: code,
    importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  })
  letGo(text)
  if (code !== undefined) letGo(code)
  return script
}

/** Complete or not at all, also after a power failure: V8 does not check whether it is damaged. */
const keepCode = (path: string): void => {
  const half = `${path}.${process.pid}`
  writeFileSync(half, script.createCachedData())
  const written = openSync(half, 'r')
  fsyncSync(written)
  closeSync(written)
  renameSync(half, path)
}

const keepLater = (): void => {
  if (existsSync(startedCode)) return
  setTimeout(() => {
    try {
      keepCode(startedCode)
    } catch {
      // It belongs to another user, or its disk is full.
    }
  }, keepAfterMs).unref()
}

const script = compile()
const loaded = { exports: {} as Server }
script.runInThisContext()(require, loaded, filename)
if (process.argv[2] === '--prepare') keepCode(preparedCode)
else void loaded.exports.serve().then(keepLater)
