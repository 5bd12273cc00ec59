import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { after, test } from 'node:test'
import { applicationBody, type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { startGitServer } from '../../../test/support/peers/git-server.ts'
import { openGitPlace, removeGitPlace } from '../../builds/git/place.ts'
import { createGit } from '../../builds/git/process.ts'
import { createMirrors } from '../../builds/mirrors/mirrors.ts'
import { createOutbound } from '../../lib/net/outbound.ts'

const api = await startApi({ idle: true })
const { call, organizationId, parts } = api
const base = `/organization/${organizationId}`

const open = await startGitServer()
const guarded = await startGitServer({ auth: { username: 'o', password: 'right' } })
for (const server of [open, guarded]) {
  await server.createRepository('shop')
  await server.commit('shop', { 'infra/dev/a.tf': '', Dockerfile: '' }, 'First')
  await server.commit('shop', { b: '' }, 'Second')
  await server.commit('shop', { c: '' }, 'Other', { branch: 'feature/x' })
}

const place = await openGitPlace(parts.settings.dataDir, parts.log)
after(() => removeGitPlace(parts.settings.dataDir))
const mirrors = createMirrors({
  ...parts,
  git: createGit(place),
  folder: place.mirrors,
  template: place.template,
  network: createOutbound({ allow: ['loopback'] }),
})
parts.builder = {
  ...parts.builder,
  branches: mirrors.branches,
  commits: mirrors.commits,
  folders: mirrors.folders,
  files: mirrors.files,
}

/** Three provider APIs below one address; `asked` records their requests. */
const asked: string[] = []
const shop = guarded.url('shop')
const github = (index: number) => ({
  id: index,
  full_name: index === 0 ? 'o/shop' : `o/repository-${index}`,
  clone_url: shop,
  default_branch: 'main',
  private: true,
})
const gitlab = {
  id: 7,
  path_with_namespace: 'g/sub/shop',
  http_url_to_repo: shop,
  default_branch: 'main',
  visibility: 'public',
}
const bitbucket = {
  uuid: '{1}',
  full_name: 'o/shop',
  links: {
    clone: [
      { name: 'ssh', href: 'x' },
      { name: 'https', href: shop.replace('//', '//me@') },
    ],
  },
  mainbranch: { name: 'main' },
  is_private: true,
}
const answers: Record<string, unknown> = {
  '/github/user/repos?per_page=100&page=1&sort=full_name': Array.from({ length: 100 }, (_, index) => github(index)),
  '/github/user/repos?per_page=100&page=2&sort=full_name': [github(100)],
  '/github/repos/o/shop': github(0),
  '/gitlab/projects?membership=true&simple=true&order_by=id&per_page=100&page=1': [gitlab],
  '/gitlab/projects/g%2Fsub%2Fshop': gitlab,
  '/bitbucket/repositories/o?pagelen=100&page=1': { values: [bitbucket] },
  '/bitbucket/repositories/o/shop': bitbucket,
}
const hosts = createServer((request, response) => {
  asked.push(`${request.headers.authorization} ${request.url}`)
  const answer = answers[request.url!]
  const status = request.headers.authorization !== 'Bearer right' ? 401 : answer === undefined ? 404 : 200
  response.writeHead(status).end(typeof answer === 'string' ? answer : JSON.stringify(answer ?? {}))
}).listen(0, '127.0.0.1')
await once(hosts, 'listening')
const origin = `http://127.0.0.1:${(hosts.address() as { port: number }).port}`

after(async () => {
  hosts.close()
  await mirrors.close()
  await open.close()
  await guarded.close()
})

let made = 0
const newToken = async (type: string, more: Json = {}): Promise<string> => {
  made += 1
  const git_api_url = `${origin}/${type.toLowerCase()}`
  const body = { name: `token ${made}`, type, token: 'right', workspace: 'o', git_api_url, ...more }
  const answer = await call('POST', `${base}/gitToken`, body)
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return answer.body.id
}

test('without a token of the provider, its repositories are refused in one sentence that says what is needed', async () => {
  for (const path of [`${base}/account/github/repository`, '/account/gitlab/repository']) {
    const { status, body } = await call('GET', path)
    assert.deepEqual([status, body.code], [400, 'git_token_missing'])
    assert.match(body.message, /git token for GIT(HUB|LAB)/)
  }
})

test('every provider lists the repositories that a token sees, page by page', async () => {
  for (const type of ['GITHUB', 'GITLAB', 'BITBUCKET']) {
    const id = await newToken(type)
    const path = `account/${type.toLowerCase()}/repository`
    const { body } = await call('GET', `${base}/${path}?gitTokenId=${id}`)
    const first = {
      GITHUB: { id: '0', name: 'o/shop', is_private: true },
      GITLAB: { id: '7', name: 'g/sub/shop', is_private: false },
      BITBUCKET: { id: '{1}', name: 'o/shop', is_private: true },
    }[type]
    assert.deepEqual(body.results[0], { ...first, url: shop, default_branch: 'main' })
    assert.equal(body.results.length, type === 'GITHUB' ? 101 : 1)
    // The oldest token is used if none is named.
    assert.deepEqual((await call('GET', `/${path}`)).body, body)
  }
  // A token is not an account, or clients would show it twice.
  for (const path of ['/account/gitAuthProvider', `${base}/account/gitAuthProvider`])
    assert.deepEqual((await call('GET', path)).body, { results: [] })
})

test('what a git host sends is counted before it is parsed, and no list of it is too long for us', async (t) => {
  const path = '/gitlab/projects?membership=true&simple=true&order_by=id&per_page=100&page=1'
  const id = await newToken('GITLAB')
  const list = () => call('GET', `${base}/account/gitlab/repository?gitTokenId=${id}`)
  t.after(() => {
    answers[path] = [gitlab]
    delete answers[path.replace('&page=1', '&page=2')]
  })
  answers[path] = `[${'{},'.repeat(1_300_000)}{}]`
  const refused = await list()
  assert.deepEqual([refused.status, refused.body.code], [400, 'git_unreachable'])
  assert.match(refused.body.message, /not that of a git host/)
  // As many as may be parsed are more than the arguments that a call can have.
  answers[path] = `[${'{},'.repeat(90_000)}{}]`
  answers[path.replace('&page=1', '&page=2')] = []
  const { status, body } = await list()
  assert.deepEqual([status, body.results.length <= 1000], [200, true])
})

test('branches of a private repository are read from it with the token', async () => {
  const path = `${base}/account/bitbucket/repository/branch?gitTokenId=`
  // The API names the repository's location: the token is not sent there for that reason.
  const narrow = await call('GET', `${path}${await newToken('BITBUCKET')}&name=o/shop`)
  assert.deepEqual([narrow.status, narrow.body.code], [400, 'git_token_elsewhere'])
  const id = await newToken('BITBUCKET', { repository_origins: [new URL(shop).origin] })
  const { body } = await call('GET', `${path}${id}&name=o/shop`)
  assert.deepEqual(body.results, [{ name: 'feature/x' }, { name: 'main' }])
  for (const name of ['', '&name=shop', '&name=o/shop?x', '&name=o/none']) {
    const refused = await call('GET', path + id + name)
    assert.equal(refused.status, 400, name)
  }
})

test('a token that is not admitted, of another provider or of another organization is refused by its own words', async () => {
  const wrong = await newToken('GITHUB', { token: 'wrong' })
  const denied = await call('GET', `${base}/account/github/repository?gitTokenId=${wrong}`)
  assert.deepEqual([denied.status, denied.body.code], [400, 'git_denied'])
  const other = await newToken('GITLAB')
  const stranger = await api.newOrganization()
  const theirs = await api.as(stranger.token)('POST', `/organization/${stranger.id}/gitToken`, {
    name: 't',
    type: 'GITHUB',
    token: 'right',
    git_api_url: `${origin}/github`,
  })
  asked.length = 0
  for (const id of [other, theirs.body.id]) {
    const refused = await call('GET', `${base}/account/github/repository?gitTokenId=${id}`)
    assert.deepEqual([refused.status, refused.body.code], [400, 'git_token_missing'])
  }
  assert.deepEqual(asked, [])
})

test('a kept token is not sent to another host: it must be sent again when the address changes', async () => {
  const id = await newToken('GITHUB')
  const moved = await call('PUT', `${base}/gitToken/${id}`, { git_api_url: 'http://127.0.0.2:9/api' })
  assert.deepEqual([moved.status, moved.body.details[0].field], [400, '/token'])
  assert.equal((await call('PUT', `${base}/gitToken/${id}`, { description: 'kept' })).status, 200)
  const both = { git_api_url: 'http://127.0.0.2:9/api', token: 'again' }
  assert.equal((await call('PUT', `${base}/gitToken/${id}`, both)).status, 200)
})

test('folders are listed as paths from the top, of private repositories with a token only', async () => {
  const list = (body: Json) => call('POST', `${base}/listDirectoriesFromGitRepository`, body)
  const source = { url: open.url('shop'), branch: 'main', provider: 'GITHUB' }
  assert.deepEqual((await list(source)).body, { results: ['infra'] })
  assert.deepEqual((await list({ ...source, root_path: '/infra' })).body, { results: ['infra/dev'] })
  const codes = [
    [{ ...source, root_path: '/none' }, 'git_ref_missing'],
    [{ ...source, branch: 'none' }, 'git_ref_missing'],
    [{ ...source, url: guarded.url('shop') }, 'git_denied'],
    [{ ...source, url: 'http://127.0.0.1:9/none.git' }, 'git_unreachable'],
  ] as const
  for (const [body, code] of codes) {
    const refused = await list(body)
    assert.deepEqual([refused.status, refused.body.code], [400, code])
  }
  const git_token_id = await newToken('BITBUCKET')
  assert.deepEqual((await list({ ...source, url: guarded.url('shop'), git_token_id })).body, { results: ['infra'] })
})

test('Dockerfiles, values and variables are read from a repository as they are written there', async () => {
  const { environmentId } = await newPlace(api)
  const git_repository = { url: open.url('forms'), branch: 'main', provider: 'GITHUB' }
  await open.createRepository('forms')
  await open.commit(
    'forms',
    {
      Dockerfile:
        'ARG NODE=24\nFROM node:$NODE AS base\nARG TOKEN\nEXPOSE 8080/tcp 53/udp $PORT\nFROM base\nEXPOSE 9000\nCMD ["x"]\n',
      'bad/Dockerfile': 'NONSENSE x\n',
      'prod.tfvars': 'region = "eu" # here\nzones = ["a", "b"]\n',
      'env/dev.tfvars.json': '{"size":3,"name":"dev"}',
      'main.tf': 'variable "key" {\n  sensitive = true\n  default = "canary"\n}\n',
      'env/inner.tf': 'variable "inner" {}\n',
    },
    'files',
  )
  const check = (dockerfile_path: string, repository = git_repository) =>
    call('POST', `/environment/${environmentId}/checkDockerfile`, { git_repository: repository, dockerfile_path })
  const good = await check('Dockerfile')
  assert.deepEqual(good.body, { dockerfile_path: 'Dockerfile', arg: ['NODE', 'TOKEN'], repositories: ['node:$NODE'] })
  assert.match((await check('none')).body.message, /no such file/)
  assert.equal((await check('bad/Dockerfile')).status, 400)
  assert.equal((await check('../Dockerfile')).status, 400)
  const found = await call('POST', `/environment/${environmentId}/inspectRepository`, {
    git_repository: { url: git_repository.url },
  })
  assert.equal(found.body.branch, 'main')
  assert.ok(found.body.branches.includes(git_repository.branch), JSON.stringify(found.body))
  const inBranch = await call('POST', `/environment/${environmentId}/inspectRepository`, { git_repository })
  assert.deepEqual(inBranch.body.dockerfiles, [
    { path: 'Dockerfile', exposed_ports: [9000, 8080] },
    { path: 'bad/Dockerfile', exposed_ports: [] },
  ])
  const absent = { ...git_repository, branch: 'none' }
  const without = await call('POST', `/environment/${environmentId}/inspectRepository`, { git_repository: absent })
  assert.deepEqual([without.body.branch, without.body.dockerfiles], ['none', []])
  const values = async (mode: object) =>
    (await call('POST', `${base}/listTfVarsFilesFromGitRepo`, { git_repository, mode })).body.results
  const dev = { source: 'env/dev.tfvars.json', variables: { size: '3', name: 'dev' } }
  const prod = { source: 'prod.tfvars', variables: { region: 'eu', zones: '["a", "b"]' } }
  assert.deepEqual(await values({ type: 'AutoDiscover' }), [dev, prod])
  assert.deepEqual(await values({ type: 'SpecificPaths', paths: ['/prod.tfvars', 'none'] }), [prod])
  const declared = await call('POST', `${base}/parseTerraformVariablesFromGitRepo`, { git_repository })
  assert.deepEqual(declared.body.results, [
    { key: 'key', sensitive: true, nullable: true, default: null, description: null, source: 'main.tf' },
  ])
  const inner = { git_repository: { ...git_repository, root_path: '/env' } }
  const [below] = (await call('POST', `${base}/parseTerraformVariablesFromGitRepo`, inner)).body.results
  assert.deepEqual([below.key, below.source], ['inner', 'inner.tf'])
  const stranger = { ...git_repository, url: guarded.url('shop') }
  assert.equal((await check('Dockerfile', stranger)).body.code, 'git_denied')
  const git_token_id = await newToken('BITBUCKET')
  const admitted = await check('Dockerfile', { ...stranger, git_token_id } as typeof stranger)
  assert.notEqual(admitted.body.code, 'git_denied')
  assert.match(admitted.body.message ?? 'read', /read|Dockerfile/)
})

test('the commits of an application are those of its branch, the newest first, with the page of each', async () => {
  const { environmentId } = await newPlace(api)
  const url = open.url('shop')
  const application = await newApplication(api, environmentId, { git_repository: { url, branch: 'main' } })
  const path = `/application/${application.id}/commit`
  const { results } = (await call('GET', path)).body
  assert.deepEqual(
    results.map(({ message }: Json) => message),
    ['Second', 'First'],
  )
  assert.equal(results[0].commit_page_url, `${url.replace('.git', '')}/commit/${results[0].git_commit_id}`)
  const [newest, oldest] = results
  const after = (await call('GET', `${path}?startId=${newest.git_commit_id}`)).body.results
  assert.deepEqual(after, [oldest])
  assert.deepEqual((await call('GET', `${path}?gitCommitId=${oldest.git_commit_id}`)).body.results, [oldest])
  assert.equal((await call('GET', `${path}?gitCommitId=--upload-pack`)).status, 400)
})

test('the pages of commits are those of the provider that is named, whatever the host is called', async () => {
  const { environmentId } = await newPlace(api)
  const pages = { BITBUCKET: '/commits/', GITHUB: '/commit/', GITLAB: '/-/commit/' }
  const bodies = {
    application: (git_repository: Json) => ({ git_repository }),
    job: (git_repository: Json) => ({ source: { docker: { git_repository } }, schedule: { on_start: {} } }),
    terraform: (git_repository: Json) => ({
      ...{ terraform_files_source: { git_repository }, engine: 'OPEN_TOFU' },
      ...{ terraform_variables_source: { tf_vars: [] }, backend: { kubernetes: {} } },
      provider_version: { explicit_version: '1.9.0' },
    }),
  }
  for (const [kind, bodyOf] of Object.entries(bodies))
    for (const [provider, page] of Object.entries(pages)) {
      const body = { name: `${kind} ${provider}`, ...bodyOf({ url: open.url('shop'), branch: 'main', provider }) }
      const created = await call('POST', `/environment/${environmentId}/${kind}`, body)
      assert.equal(created.status, 201, JSON.stringify(created.body))
      const [newest] = (await call('GET', `/${kind}/${created.body.id}/commit`)).body.results
      const repository = open.url('shop').replace('.git', '')
      assert.equal(newest.commit_page_url, `${repository}${page}${newest.git_commit_id}`)
    }
  const named = { name: 'named', git_repository: { url: 'https://git.example/a/b', provider: 'BITBUCKET' } }
  const { git_repository } = (await call('POST', `/environment/${environmentId}/application`, named)).body
  assert.equal(git_repository.provider, 'BITBUCKET')
})

test('the commits of a helm service are those of its chart, or of its values', async () => {
  const { environmentId } = await newPlace(api)
  const repository = (branch: string) => ({ git_repository: { url: open.url('shop'), branch } })
  const file = { git: { ...repository('feature/x'), paths: ['values.yaml'] } }
  const body = { name: 'chart', source: repository('main'), values_override: { file }, arguments: [] }
  const { id } = (await call('POST', `/environment/${environmentId}/helm`, body)).body
  const newest = async (of: string) => (await call('GET', `/helm/${id}/commit?of=${of}`)).body.results[0].message
  assert.deepEqual([await newest('chart'), await newest('values')], ['Second', 'Other'])
})

test('a git token that has expired is said to have, whatever is asked of a repository', async () => {
  const git_token_id = await newToken('BITBUCKET', { expired_at: '2020-01-01' })
  const { environmentId } = await newPlace(api)
  const git_repository = { url: guarded.url('shop'), git_token_id }
  const { status, body } = await call('POST', `/environment/${environmentId}/inspectRepository`, { git_repository })
  assert.deepEqual([status, body.code], [400, 'git_token_expired'])
})

test('only who administers the organization may have a git token sent to another host than its own', async () => {
  const git_token_id = await newToken('BITBUCKET', { git_api_url: 'https://api.bitbucket.org/2.0' })
  const { environmentId } = await newPlace(api)
  const git_repository = { url: guarded.url('shop'), branch: 'main', git_token_id }
  const writer = api.as(await api.newToken(['Write']))
  const infra = { ...git_repository, root_path: '/infra' }
  const asks: [string, object][] = [
    [`/environment/${environmentId}/inspectRepository`, { git_repository }],
    [`/environment/${environmentId}/checkDockerfile`, { git_repository, dockerfile_path: 'Dockerfile' }],
    [`/environment/${environmentId}/checkHelmRepository`, { git_repository }],
    [`${base}/listDirectoriesFromGitRepository`, git_repository],
    [`${base}/parseTerraformVariablesFromGitRepo`, { git_repository: infra }],
    [`/environment/${environmentId}/application`, { ...applicationBody('leak'), git_repository }],
  ]
  const heard = guarded.requests.length
  for (const [path, body] of asks) {
    const { status, body: answer } = await writer('POST', path, body)
    assert.deepEqual([path, status, answer.code], [path, 400, 'git_token_elsewhere'])
  }
  assert.equal(guarded.requests.length, heard)
  // Settings of an administrator stay, even if sent back whole; another repository does not replace them.
  const { id } = await newApplication(api, environmentId, { git_repository })
  const path = `/application/${id}`
  const { body: kept } = await writer('GET', path)
  assert.equal((await writer('PUT', path, { ...kept, description: 'mine' })).status, 200)
  const moved = await writer('PUT', path, { ...kept, git_repository: { ...git_repository, url: open.url('shop') } })
  assert.equal(moved.body.code, 'git_token_elsewhere')
  assert.equal((await call('POST', asks[0]![0], asks[0]![1])).status, 200)
})

test('a git token is sent to no other port or scheme of the host of its API, whichever user names it', async () => {
  const writer = api.as(await api.newToken(['Write']))
  const { environmentId } = await newPlace(api)
  // The API and the repository have the same host name: 127.0.0.1.
  const git_token_id = await newToken('GITHUB')
  const git_repository = { url: guarded.url('shop'), branch: 'main', git_token_id }
  const body = { ...applicationBody('other port'), git_repository }
  const heard = guarded.requests.length
  const refused = await writer('POST', `/environment/${environmentId}/application`, body)
  assert.deepEqual([refused.status, refused.body.code], [400, 'git_token_elsewhere'])
  assert.match(refused.body.message, /scheme, host and port/)
  // Nor by a row from before.
  const { id } = await newApplication(api, environmentId, { git_repository: { url: guarded.url('shop') } })
  const set = `jsonb_set(spec, '{git_repository,git_token_id}', to_jsonb($2::text))`
  await api.database.query(`update node set spec = ${set} where id = $1`, [id, git_token_id])
  const commits = await call('GET', `/application/${id}/commit`)
  assert.deepEqual([commits.status, commits.body.code], [400, 'git_token_elsewhere'])
  const heardBy = (text: string) => guarded.requests.slice(heard).filter((line) => JSON.stringify(line).includes(text))
  assert.deepEqual(heardBy(Buffer.from('x-access-token:right').toString('base64')), [])

  // A user who knows the token decides where it may be sent.
  const path = `${base}/gitToken/${git_token_id}`
  const repository_origins = [new URL(guarded.url('shop')).origin]
  for (const ask of [writer, call]) {
    const alone = await ask('PUT', path, { repository_origins })
    assert.deepEqual([alone.status, alone.body.details[0].field], [400, '/token'])
  }
  for (const wrong of ['git.example', 'ssh://git.example', 'https://git.example/a', 'https://u@git.example']) {
    const { status, body: answer } = await call('PUT', path, { repository_origins: [wrong], token: 'right' })
    assert.deepEqual([status, answer.details[0].field], [400, '/repository_origins/0'], wrong)
  }
  const widened = await call('PUT', path, { repository_origins, token: 'right' })
  assert.deepEqual([widened.status, widened.body.repository_origins], [200, repository_origins])
  assert.equal((await writer('POST', `/environment/${environmentId}/application`, body)).status, 201)
  const kept = await call('PUT', path, { description: 'kept' })
  assert.deepEqual(kept.body.repository_origins, repository_origins)
})

test('a token of a public host is for its repositories, and for what an administrator uses it for elsewhere', async () => {
  const { environmentId } = await newPlace(api)
  const read = async (id: string) => (await call('GET', `${base}/gitToken/${id}`)).body
  const usual = { GITHUB: 'https://github.com', GITLAB: 'https://gitlab.com', BITBUCKET: 'https://bitbucket.org' }
  for (const [type, origin] of Object.entries(usual)) {
    const id = await newToken(type, { git_api_url: undefined })
    const { repository_origins, repository_urls } = await read(id)
    assert.deepEqual([repository_origins, repository_urls], [[origin], []])
  }
  const git_token_id = await newToken('GITHUB', { git_api_url: undefined })
  const url = guarded.url('shop')
  await newApplication(api, environmentId, { git_repository: { url, branch: 'main', git_token_id } })
  assert.deepEqual((await read(git_token_id)).repository_urls, [url])
  // Another type has another host, and a new token is approved for nothing.
  const moved = { type: 'GITLAB', token: 'again' }
  assert.equal((await call('PUT', `${base}/gitToken/${git_token_id}`, moved)).status, 200)
  const after = await read(git_token_id)
  assert.deepEqual([after.repository_origins, after.repository_urls], [[usual.GITLAB], []])
})

test('who uses a git token is counted, listed and keeps it from being deleted', async () => {
  const id = await newToken('GITHUB')
  const { environmentId } = await newPlace(api)
  const git_repository = { url: open.url('shop'), branch: 'main', git_token_id: id.toUpperCase() }
  const application = await newApplication(api, environmentId, { git_repository })
  assert.equal((await call('GET', `${base}/gitToken/${id}`)).body.associated_services_count, 1)
  const [user] = (await call('GET', `${base}/gitToken/${id}/associatedServices`)).body.results
  assert.deepEqual([user.service_id, user.service_type], [application.id, 'APPLICATION'])
  assert.equal((await call('DELETE', `${base}/gitToken/${id}`)).body.code, 'git_token_in_use')
})
