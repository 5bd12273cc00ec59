/** The version of this server: that of its package, as CHANGELOG.md has it. */
import { readFileSync } from 'node:fs'

const file = new URL('../../package.json', import.meta.url)

export const { version } = JSON.parse(readFileSync(file, 'utf8')) as { version: string }
