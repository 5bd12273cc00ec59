/** What the engine of this machine can give one service: millicores and MB. */
import { cpus, totalmem } from 'node:os'

export const maximumCpu = cpus().length * 1000
export const maximumMemory = Math.floor(totalmem() / 2 ** 20)
