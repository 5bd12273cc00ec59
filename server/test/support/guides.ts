/** The guides and their examples, pasted into a shell as a reader does. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname } from 'node:path'

const root = new URL('../../../', import.meta.url)
const folder = new URL('docs/guides/', root)

export const guides = readdirSync(folder)
  .filter((name) => name.endsWith('.md'))
  .map((name) => ({ name, text: readFileSync(new URL(name, folder), 'utf8') }))

export const examplesOf = (name: string): string[] => {
  const { text } = guides.find((guide) => guide.name === name)!
  return [...text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, example]) => example!)
}

/** Those with examples to paste. */
export const guidesToPaste = guides.map(({ name }) => name).filter((name) => examplesOf(name).length > 0)

export interface Pasted {
  code: number | null
  text: string
}

/** All of it in one shell in the checkout, which ends at the first command that fails and says at which. */
export const paste = (examples: readonly string[], env: Record<string, string>, shell = 'bash'): Promise<Pasted> =>
  new Promise((resolve) => {
    const script = examples.map((example, at) => `echo "example ${at + 1}"\n${example}`).join('\n')
    const path = `${dirname(process.execPath)}:${process.env.PATH ?? ''}`
    const child = spawn(shell, ['-euo', 'pipefail', '-c', script], {
      cwd: root,
      env: { ...env, PATH: path },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let text = ''
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (more: string) => {
        text += more
      })
    child.on('close', (code) => resolve({ code, text }))
  })

/** Pastes whole guides one after another, each of which must succeed and print what a reader can use. */
export const pasteGuides = async (names: readonly string[], env: Record<string, string>): Promise<string> => {
  const { code, text } = await paste(
    names.flatMap((name) => [`echo "guide ${name}"\n`, ...examplesOf(name)]),
    env,
  )
  assert.equal(code, 0, text)
  assert.doesNotMatch(text, /^(undefined|null)$|curl:|has no field|\w+Error:/m)
  return text
}
