/** A module of the operator, which makes things outside the cluster: each of its runs is a task, with the current configuration. */
import type { Source } from '../deployments.ts'
import { moduleName, moduleStopRefusal } from '../desired/modules.ts'
import type { Driver } from './driver.ts'

export const module: Driver<Extract<Source, { from: 'module' }>> = {
  artifact: null,
  refusal: (place, { source }) => place.module(source),
  stopRefusal: moduleStopRefusal,
  next({ current }, source) {
    const [from, to] = [current?.image ?? null, moduleName(source)]
    return { of: 'image', from, to, fromName: from, toName: to }
  },
  make: async (_run, source) => ({ image: moduleName(source), commit: null, source: null }),
}
