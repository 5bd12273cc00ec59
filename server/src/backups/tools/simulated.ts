/**
 * The tools where deployments are simulated: a dump is one line that names its database, and a load takes any dump. A
 * database is empty until then. No program runs.
 */
import type { Runtime } from '../../runtimes/runtime.ts'

/** Databases that were dumped or loaded: there is something in them. */
const filled = new Set<string>()

async function* dumpOf(serviceId: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(`-- a simulated dump of ${serviceId}\n`)
}

export const simulatedTools: Runtime['pipe'] = async (task, { stdin, stdout, onLine }, signal) => {
  signal.throwIfAborted()
  const mode = task.entrypoint?.at(-1)
  const isDump = mode === 'dump'
  if (mode === 'load-into-empty' && filled.has(task.serviceId)) {
    onLine('slipway:occupied')
    return { exitCode: 1, oomKilled: false, timedOut: false }
  }
  if (mode !== 'check') filled.add(task.serviceId)
  if (isDump) await stdout?.(dumpOf(task.serviceId))
  if (stdin !== undefined) for await (const _ of stdin) signal.throwIfAborted()
  onLine(`slipway:${isDump ? 'before' : 'found'}\t1\tsimulated`)
  if (isDump) onLine('slipway:after\t1\tsimulated')
  onLine('slipway:done')
  return { exitCode: 0, oomKilled: false, timedOut: false }
}
