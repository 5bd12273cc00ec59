/** The commands of a push, and which of them are refused at once. Pure: names and ids are untrusted. */
import { isValidBranch } from '../../builds/git/names.ts'
import type { OwnRef } from '../../deployments/sources/git/own.ts'
import { badRequest } from '../../lib/errors.ts'

/** The id of a missing branch or tag: a create starts from it, a delete ends with it. */
export const noId = '0'.repeat(40)

export interface Command {
  from: string
  to: string
  name: string
}

interface Commands {
  commands: Command[]
  capabilities: ReadonlySet<string>
}

export const capabilities = 'report-status delete-refs side-band-64k ofs-delta object-format=sha1 agent=slipway'

const maxCommands = 100
const maxRefs = 200

const commandIn = (line: string): Command => {
  const [, from, to, name] = /^([0-9a-f]{40}) ([0-9a-f]{40}) (.+?)\n?$/s.exec(line) ?? []
  if (from === undefined || to === undefined || name === undefined) throw badRequest('This is not a Git request.')
  return { from, to, name }
}

/** Throws a 400 for requests that git itself never sends. */
export const readCommands = (lines: readonly Buffer[]): Commands => {
  if (lines.some((line) => line.toString('latin1', 0, 8) === 'shallow '))
    throw badRequest('This clone is shallow: fetch its whole history with git fetch --unshallow, and push again.')
  if (lines.length > maxCommands) throw badRequest(`At most ${maxCommands} branches and tags can be pushed at once.`)
  const [first = Buffer.alloc(0), ...others] = lines
  const end = first.indexOf(0)
  const words = end === -1 ? '' : first.toString('latin1', end + 1).trim()
  const all = [end === -1 ? first : first.subarray(0, end), ...others].map((line) => line.toString('utf8'))
  return { commands: lines.length === 0 ? [] : all.map(commandIn), capabilities: new Set(words.split(' ')) }
}

const isBelow = (one: string, other: string): boolean => one.startsWith(`${other}/`) || other.startsWith(`${one}/`)

const nameRefusal = (name: string): string | null => {
  const short = /^refs\/(?:heads|tags)\/(.*)$/s.exec(name)?.[1]
  if (short === undefined) return 'only branches and tags can be pushed'
  return isValidBranch(short) ? null : 'the name is not valid'
}

const moveRefusal = ({ from, to, name }: Command, there: OwnRef | undefined, deployed: string): string | null => {
  if (to === noId && name === deployed) return 'the deployed branch cannot be deleted'
  if (to === noId && there === undefined) return 'it does not exist'
  const seen = [there?.objectId ?? noId, there?.shownId ?? noId]
  return seen.includes(from) ? null : 'it has changed meanwhile: fetch, and push again'
}

/** Why each command is refused, in their order; null for those that are not. */
export const refusals = (
  commands: readonly Command[],
  refs: readonly OwnRef[],
  deployed: string,
): (string | null)[] => {
  const there = new Map(refs.map((ref) => [ref.name, ref]))
  const names = new Set(there.keys())
  const done = new Set<string>()
  return commands.map((command) => {
    const { name, to } = command
    const refusal = nameRefusal(name) ?? moveRefusal(command, there.get(name), deployed)
    if (refusal !== null) return refusal
    if (done.has(name)) return 'it is named more than once'
    done.add(name)
    if (to === noId) names.delete(name)
    else if ([...names].some((other) => isBelow(name, other))) return 'another branch or tag is in its way'
    else names.add(name)
    return names.size > maxRefs ? `a repository has at most ${maxRefs} branches and tags` : null
  })
}
