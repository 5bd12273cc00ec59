/** What end-to-end tests begin with: a Slipway of the file's own on the real engine, and a git server that it may read. */
import { after } from 'node:test'
import { ensureBusybox } from '../docker/busybox-image.ts'
import { engine } from '../docker/docker.ts'
import { type GitServer, startGitServer } from '../peers/git-server.ts'
import { prepareSlipway, type Slipway, type SlipwayOptions } from './slipway.ts'

/** Both run until the tests of the file are over, and nothing is left of them, also of what did not come up. */
export const withSlipway = async (options: SlipwayOptions = {}): Promise<{ slipway: Slipway; git: GitServer }> => {
  const ends: (() => Promise<void>)[] = [() => engine.close()]
  const end = async (): Promise<void> => {
    for (const each of ends.splice(0).reverse()) await each()
  }
  after(end)
  try {
    await ensureBusybox()
    const git = await startGitServer()
    ends.push(() => git.close())
    const slipway = await prepareSlipway(options)
    ends.push(() => slipway.remove())
    await slipway.start()
    return { slipway, git }
  } catch (error) {
    await end()
    throw error
  }
}
