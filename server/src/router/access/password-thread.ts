/** The thread that compares slow hashes, so that requests of others do not wait for them. */
import { parentPort } from 'node:worker_threads'
import { matches } from './passwords.ts'

export interface Question {
  id: number
  hash: string
  password: string
}

parentPort?.on('message', ({ id, hash, password }: Question) => {
  parentPort?.postMessage({ id, isRight: matches(hash, password) })
})
