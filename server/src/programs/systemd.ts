/** `bin/run systemd`: prints a systemd unit that starts this checkout at boot. */
import { existsSync, statSync } from 'node:fs'
import { delimiter, isAbsolute, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { userName } from '../lib/system-user.ts'
import { type UnitParts, unitText } from './systemd-unit.ts'

const usual = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin']

/** Where this shell finds what an install needs, which a service would not. */
const searchPath = (root: string): string => {
  const own = join(root, 'node_modules')
  const folders = (process.env.PATH ?? '').split(delimiter).filter((each) => isAbsolute(each) && !each.startsWith(own))
  const needed = ['node', 'npm', 'git'].flatMap((name) => folders.find((each) => existsSync(join(each, name))) ?? [])
  return [...new Set([...needed, ...usual])].join(delimiter)
}

const { values } = parseArgs({ options: { user: { type: 'string' } } })
const root = resolve(fileURLToPath(new URL('../../..', import.meta.url)))
const { SLIPWAY_DATA_DIR: dataDir } = process.env
const parts: UnitParts = {
  root,
  user: values.user ?? (await userName(statSync(root).uid)),
  path: searchPath(root),
  dataDir: dataDir ? resolve(dataDir) : null,
}
process.stdout.write(unitText(parts))
