/** The driver of each source. A new kind of artifact needs one more. */
import type { Source } from '../deployments.ts'
import { app } from './app.ts'
import { chart } from './chart.ts'
import type { Driver } from './driver.ts'
import { built, pulled } from './image.ts'
import { module } from './module.ts'

const drivers: { [From in Source['from']]: Driver<Extract<Source, { from: From }>> } = {
  git: built,
  image: pulled,
  chart,
  app,
  module,
}

export const driverOf = ({ from }: Source): Driver => drivers[from]
