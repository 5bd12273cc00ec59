/** Every fault that this suite injects, in the order of the table. */
import { acknowledgedFaults } from './acknowledged.ts'
import { receiverFaults } from './bad-receivers.ts'
import { badVersionFaults } from './bad-versions.ts'
import { buildFaults } from './builds.ts'
import { containerFaults } from './containers.ts'
import { databaseFaults } from './database-away.ts'
import { duplicateFaults } from './duplicates.ts'
import { engineFaults } from './engine-away.ts'
import type { Fault } from './fault.ts'
import { firstStartFaults } from './first-start.ts'
import { floodFaults } from './floods.ts'
import { queueFaults } from './full-queue.ts'
import { keyFaults } from './keys.ts'
import { killFaults } from './kills.ts'
import { overloadFaults } from './overload.ts'
import { raceFaults } from './races.ts'

const groups: readonly (readonly Fault[])[] = [
  acknowledgedFaults,
  containerFaults,
  databaseFaults,
  engineFaults,
  keyFaults,
  killFaults,
  buildFaults,
  badVersionFaults,
  receiverFaults,
  duplicateFaults,
  raceFaults,
  overloadFaults,
  queueFaults,
  firstStartFaults,
  floodFaults,
]

const numberOf = ({ id }: Fault): number => Number(id.slice(1))

export const faults: readonly Fault[] = groups.flat().sort((a, b) => numberOf(a) - numberOf(b))
