/**
 * One `git push`: receives the pack, decides which commands are accepted, and reports the progress of the deployment
 * to the client in lines of `remote:`. A branch whose deployment fails is reported as rejected, so that git exits with
 * 1; its commit is kept all the same, and can be pushed again (docs/decisions/0039). If the client disconnects after
 * its push was accepted, the deployment continues.
 */
import { atMost } from '../../builds/pushed/intake.ts'
import { type Ending, followDeployment } from '../../deployments/sources/git/follow.ts'
import type { Accepted, OwnApplication, OwnPush, OwnRef } from '../../deployments/sources/git/own.ts'
import type { Pusher } from '../../deployments/sources/git/request-push.ts'
import { untilAborted } from '../../lib/concurrency/waiting.ts'
import { ApiError } from '../../lib/errors.ts'
import type { Principal } from '../auth/principal.ts'
import type { Parts } from '../parts.ts'
import { type Command, noId, refusals } from './commands.ts'
import { bands, flush, inBand, pktLine } from './pkt-lines.ts'
import { type Receiver, type Receiving, receiveMs } from './receive.ts'

const followMs = 30 * 60_000
const maxLine = 1000

export interface PushRequest {
  parts: Parts
  receive: Receiver
  application: OwnApplication
  principal: Principal
  by: Pusher
  maxBytes: number
  commands: readonly Command[]
  capabilities: ReadonlySet<string>
  pack: AsyncIterable<Buffer>
  write(bytes: Buffer): void
  /** Resolves once the client has received most of the written bytes. */
  room(): Promise<void>
  /** The client has disconnected. */
  gone: AbortSignal
  /** The server is stopping, or the caller has lost the right. */
  ending: AbortSignal
}

/** Without what a terminal would interpret. */
const plain = (text: string): string =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it removes
  text.replace(/\u001b\[[0-9;?]*[A-Za-z]|[\u0000-\u0008\u000a-\u001f\u007f-\u009f]/g, '').slice(0, maxLine)

const createTeller = ({ capabilities, write }: PushRequest) => {
  const isTold = capabilities.has('side-band-64k')
  return {
    say(text: string): void {
      if (isTold) write(inBand(bands.progress, Buffer.from(`${plain(text)}\n`)))
    },
    report(unpacked: string, statuses: readonly string[]): void {
      const lines = [`unpack ${plain(unpacked)}\n`, ...statuses.map((status) => `${plain(status)}\n`)]
      const report = capabilities.has('report-status')
        ? Buffer.concat([...lines.map((line) => pktLine(line)), Buffer.from(flush)])
        : Buffer.alloc(0)
      write(isTold ? Buffer.concat([inBand(bands.data, report), Buffer.from(flush)]) : report)
    },
  }
}

type Teller = ReturnType<typeof createTeller>

interface Wanted extends Command {
  refusal: string | null
}

const branchOf = ({ branch }: OwnApplication): string => `refs/heads/${branch}`

/** Where a reference is to point; a sentence if it cannot. */
const targetOf = async (
  { intake, refs }: Receiving,
  { name, to }: Command,
): Promise<OwnPush['refs'][number] | string> => {
  if (to === noId) return { name, to: null }
  const found = await intake.target(to)
  if (found === null) return 'its objects are missing'
  if (found.kind === 'other' || (found.kind === 'tag' && name.startsWith('refs/heads/'))) return 'it is not a commit'
  const before = refs.find((ref) => ref.name === name)
  return { name, to: { objectId: to, commitId: found.commitId, baseId: before?.shownId ?? null } }
}

/** The commit that the deployed branch moves to, and why it is not deployed. */
const judgeHead = async (
  { parts, application }: PushRequest,
  { intake, refs, signal }: Receiving,
  moved: OwnPush['refs'],
): Promise<OwnPush['head']> => {
  const head = moved.find(({ name, to }) => name === branchOf(application) && to !== null)
  if (head === undefined) return null
  const commit = await intake.commit(head.to!.commitId)
  const from = refs.find(({ name }) => name === head.name)?.shownId ?? null
  const reason = await parts.deployments.own.judge(application, from, commit, intake.changes, signal)
  return { commitId: commit.git_commit_id, reason }
}

interface Outcome {
  accepted: Accepted
  head: OwnPush['head']
}

const takeIn = async (request: PushRequest, wanted: Wanted[], receiving: Receiving): Promise<Outcome> => {
  const { application, maxBytes, pack, principal, by } = request
  const reasons = refusals(wanted, receiving.refs, branchOf(application))
  for (const [index, reason] of reasons.entries()) wanted[index]!.refusal = reason
  // Deletions alone come without a pack.
  if (wanted.some(({ to }) => to !== noId)) {
    if (wanted.some(({ refusal, to }) => refusal === null && to !== noId))
      await receiving.intake.receive(pack, maxBytes, receiveMs)
    else for await (const _ of atMost(pack, maxBytes));
  }
  const refs: OwnPush['refs'][number][] = []
  for (const command of wanted) {
    if (command.refusal !== null) continue
    const target = await targetOf(receiving, command)
    if (typeof target === 'string') command.refusal = target
    else refs.push(target)
  }
  if (refs.length === 0) return { accepted: null, head: null }
  const head = await judgeHead(request, receiving, refs)
  const ids = refs.flatMap(({ to }) => (to === null ? [] : [to.objectId]))
  const stored = ids.length === 0 ? null : await receiving.store(ids)
  const accepted = await receiving.accept({ refs, pack: stored, head, pusher: principal.name, by })
  return { accepted, head }
}

/** Reports the progress of the deployment; null once it runs, else why it does not. */
const follow = async (
  { parts, application, gone, ending, room }: PushRequest,
  { say }: Teller,
  { deploymentId, executionId }: NonNullable<Accepted>,
): Promise<string | null> => {
  const late = AbortSignal.timeout(followMs)
  const signal = AbortSignal.any([gone, ending, late])
  say(`Deployment ${executionId}:`)
  const lines = followDeployment(parts.database, parts.clock, { deploymentId, serviceId: application.id }, signal)
  try {
    for (;;) {
      const { done, value } = await lines.next()
      if (done === true) return told(say, value)
      say(`  ${value}`)
      // A client that reads nothing must not have the whole log kept for it.
      await untilAborted(room(), signal)
    }
  } catch (error) {
    if (!signal.aborted) throw error
    const why = late.aborted ? 'it takes longer than 30 minutes' : 'this connection ends'
    say(`The deployment continues, although ${why}: its status and log show the result.`)
    return 'deployment still under way'
  }
}

const told = (say: Teller['say'], { isDeployed, reason }: Ending): string | null => {
  if (isDeployed) {
    say('Deployed.')
    return null
  }
  say(`Not deployed: ${reason}`)
  say('The commit is kept: push it again to try again.')
  return 'not deployed'
}

const sayKept = ({ application, commands }: PushRequest, { say }: Teller, { head, accepted }: Outcome): void => {
  if (head !== null && accepted === null) say(`Not deployed: ${head.reason}`)
  if (head === null && commands.some(({ name }) => name.startsWith('refs/heads/')))
    say(`Only the branch ${application.branch} is deployed; the pushed commits are kept.`)
}

const statusOf = ({ name, refusal }: Wanted): string => (refusal === null ? `ok ${name}` : `ng ${name} ${refusal}`)

/** Never rejects: every error is reported to the client. */
export const runPush = async (request: PushRequest): Promise<void> => {
  const { parts, receive, application, gone, ending } = request
  const teller = createTeller(request)
  const wanted: Wanted[] = request.commands.map((command) => ({ ...command, refusal: null }))
  try {
    const late = AbortSignal.timeout(receiveMs)
    const outcome = await receive(application, AbortSignal.any([gone, ending, late]), (receiving) =>
      takeIn(request, wanted, receiving),
    )
    sayKept(request, teller, outcome)
    const { accepted } = outcome
    const failure = accepted === null ? null : await follow(request, teller, accepted)
    const own = wanted.find(({ name }) => name === branchOf(application))
    if (failure !== null && own !== undefined) own.refusal = failure
    teller.report('ok', wanted.map(statusOf))
  } catch (error) {
    if (!(error instanceof ApiError) && !gone.aborted && !ending.aborted)
      parts.log.error({ err: error, applicationId: application.id }, 'a push failed')
    const sentence = error instanceof ApiError ? error.message : 'The push could not be received: try again.'
    teller.say(sentence)
    teller.report(
      error instanceof ApiError ? 'ok' : 'failed',
      wanted.map(
        ({ name }) => `ng ${name} ${error instanceof ApiError ? error.code.replaceAll('_', ' ') : 'try again'}`,
      ),
    )
  }
}

/** The refs that a pushing client gets: where each branch and tag points. */
export const advertisePush = (refs: readonly OwnRef[], words: string): Buffer => {
  const lines = refs.flatMap(({ name, shownId }) => (shownId === null ? [] : [`${shownId} ${name}`]))
  const [first = `${noId} capabilities^{}`, ...others] = lines
  return Buffer.concat([
    pktLine('# service=git-receive-pack\n'),
    Buffer.from(flush),
    pktLine(`${first}\0${words}\n`),
    ...others.map((line) => pktLine(`${line}\n`)),
    Buffer.from(flush),
  ])
}
