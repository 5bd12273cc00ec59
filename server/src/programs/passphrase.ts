/** The passphrase of a backup: from the environment, or typed on a terminal that does not show it. */
import { createInterface } from 'node:readline/promises'
import { Writable } from 'node:stream'
import { Secret } from '../lib/secret.ts'

export const passphraseName = 'SLIPWAY_BACKUP_PASSPHRASE'
const least = 12

const silent = (): Writable => new Writable({ write: (_chunk, _encoding, done) => done() })

const ask = async (question: string): Promise<string> => {
  const terminal = createInterface({ input: process.stdin, output: silent(), terminal: true })
  process.stderr.write(question)
  try {
    return await terminal.question('')
  } finally {
    terminal.close()
    process.stderr.write('\n')
  }
}

/** Null if it is not in the environment. */
export const givenPassphrase = (): Secret | null => {
  const text = process.env[passphraseName]
  if (text === undefined || text === '') return null
  if (text.length < least) throw new Error(`${passphraseName} must have at least ${least} characters`)
  return new Secret(text)
}

const refuseWithoutTerminal = (): void => {
  if (!process.stdin.isTTY) throw new Error(`there is no terminal to ask for the passphrase: set ${passphraseName}`)
}

export const askNewPassphrase = async (): Promise<Secret> => {
  refuseWithoutTerminal()
  for (;;) {
    const text = await ask(`Passphrase of this backup (at least ${least} characters): `)
    if (text.length < least) process.stderr.write('It is too short.\n')
    else if (text !== (await ask('The same again: '))) process.stderr.write('They differ.\n')
    else return new Secret(text)
  }
}

export const askPassphrase = async (): Promise<Secret> => {
  refuseWithoutTerminal()
  return new Secret(await ask('Passphrase of the backup: '))
}
