/** An environment whose pull requests have previews: one that runs, one that waits and one that gets none. */
import { startGitHostApi } from '../server/test/support/peers/git-host-api.ts'
import { startGitServer } from '../server/test/support/peers/git-server.ts'
import type { Json } from '../server/test/support/slipway/slipway.ts'
import { until } from '../server/test/support/until.ts'

type Call = (method: string, path: string, body?: unknown) => Promise<Json>

/** What the server is told, so that the second preview waits, and requests are looked for soon. */
export const previewSettings = { SLIPWAY_LIMIT_PREVIEWS: '1', SLIPWAY_GIT_POLL_SECONDS: '2' }

export interface Previewed {
  environmentId: string
  close(): Promise<void>
}

export const furnishPreviews = async (
  call: Call,
  { organizationId, projectId }: { organizationId: string; projectId: string },
): Promise<Previewed> => {
  const [git, host] = [await startGitServer(), await startGitHostApi()]
  const path = 'acme/site'
  await git.createRepository(path)
  await git.commit(path, { Dockerfile: 'FROM fake/serve:1\nEXPOSE 8080\n' }, 'First')
  for (const branch of ['basket', 'search', 'theirs'])
    await git.git(path, ['update-ref', `refs/heads/${branch}`, 'refs/heads/main'])
  const repositoryOrigins = [new URL(git.url(path)).origin]
  const token = { name: 'host of the site', ...host.token('github'), repository_origins: repositoryOrigins }
  const { id: git_token_id } = await call('POST', `/organization/${organizationId}/gitToken`, token)
  const { id: environmentId } = await call('POST', `/project/${projectId}/environment`, {
    ...{ name: 'staging', mode: 'STAGING' },
  })
  await call('POST', `/environment/${environmentId}/application`, {
    ...{ name: 'site', auto_preview: true, memory: 128, healthchecks: {} },
    ports: [{ internal_port: 8080, publicly_accessible: true }],
    git_repository: { url: git.url(path), branch: 'main', git_token_id },
  })
  const { id: ruleId } = await call('GET', `/environment/${environmentId}/deploymentRule`)
  await call('PUT', `/environment/${environmentId}/deploymentRule/${ruleId}`, { auto_preview: true })
  const states = async (): Promise<string> => {
    const { results } = await call('GET', `/environment/${environmentId}/preview`)
    return results.map(({ state }: Json) => state).join()
  }
  host.requests.set(path, [{ number: 7, branch: 'basket' }])
  await until(async () => (await states()) === 'ACTIVE', { what: 'the first preview', timeoutMs: 60_000 })
  host.requests.set(path, [
    { number: 7, branch: 'basket' },
    { number: 8, branch: 'search' },
    { number: 9, branch: 'theirs', fork: true },
  ])
  const isFilled = async (): Promise<boolean> => {
    const { results } = await call('GET', `/environment/${environmentId}/preview`)
    return ['ACTIVE', 'WAITING', 'REFUSED'].every((state) =>
      results.some((each: Json) => each.state === state && (state === 'ACTIVE' || each.reason !== null)),
    )
  }
  await until(isFilled, { what: 'a preview of each kind', timeoutMs: 60_000 })
  return {
    environmentId,
    async close() {
      await Promise.all([git.close(), host.close()])
    },
  }
}
