/**
 * The console in a real browser, on a real engine: the actions of a person's first hour. Each visited page has no
 * serious problem for axe, and no script or style that its policy refuses.
 */
import assert from 'node:assert/strict'
import { readdirSync, statSync } from 'node:fs'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import type { Browser, Page } from 'playwright-core'
import { version } from '../src/lib/version.ts'
import { browserIsMissing, buildConsole, hasNoBarriers, openBrowser, openPage } from './support/browser.ts'
import { busyboxImage, ensureBusybox } from './support/docker/busybox-image.ts'
import { engine } from './support/docker/docker.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { until } from './support/until.ts'

const skip = browserIsMissing
const patienceMs = 45_000

let slipway: Slipway
let git: GitServer
let browser: Browser
const complaints: string[] = []

/** Answers its requests, says `text`, and counts upward forever. */
const talking = (text: string): Record<string, string> => ({
  Dockerfile: [
    `FROM ${busyboxImage}`,
    'COPY . /www',
    'EXPOSE 8080',
    `CMD ["sh", "-c", "httpd -p 8080 -h /www; i=0; while true; do i=$((i+1)); echo '<b>${text}</b> line' $i; sleep 1; done"]`,
    '',
  ].join('\n'),
  'index.html': `${text}\n`,
})

before(async () => {
  if (skip !== false) return
  await ensureBusybox()
  await buildConsole()
  git = await startGitServer()
  await git.createRepository('shop')
  await git.commit('shop', talking('first'), 'Say first')
  slipway = await prepareSlipway()
  await slipway.start()
  browser = await openBrowser()
})

after(async () => {
  await browser?.close()
  await slipway?.remove()
  await git?.close()
  await engine.close()
})

let isOver = false

/** Steps that depend on each other: after a failure the following ones cannot work. */
const step = (guarantee: string, work: () => Promise<void>): void => {
  test(guarantee, { skip }, async () => {
    assert.ok(!isOver, 'an earlier step failed')
    isOver = true
    await work()
    isOver = false
  })
}

const watched = (page: Page): Page => {
  page.setDefaultTimeout(patienceMs)
  page.on('pageerror', (error) => complaints.push(`${page.url()}: ${error.stack}`))
  page.on('console', (message) => {
    if (/Content Security Policy|Refused to/.test(message.text())) complaints.push(`${page.url()}: ${message.text()}`)
  })
  return page
}

const newPage = async (): Promise<Page> =>
  watched(await (await browser.newContext({ reducedMotion: 'reduce' })).newPage())

const shows = (page: Page, text: string | RegExp): Promise<void> => page.getByText(text).first().waitFor()

const state = (page: Page, text: string): Promise<void> => page.locator('.head .state', { hasText: text }).waitFor()

const open = (page: Page, section: string): Promise<void> =>
  page.locator('.tabs').getByRole('link', { name: section, exact: true }).click()

/** Opens the plan of an action, and confirms it. */
const agree = async (page: Page, button: string): Promise<void> => {
  await page
    .getByRole('dialog')
    .getByText(/interrupt/)
    .first()
    .waitFor()
  await page.getByRole('dialog').getByRole('button', { name: button, exact: true }).click()
  await page.getByRole('dialog').waitFor({ state: 'hidden' })
}

let page: Page
let environmentId = ''

step('the printed link signs in, once, and leaves no trace in the address', async () => {
  const link = await until(() => /^Console +(\S+)/m.exec(slipway.output())?.[1], { what: 'the link to be printed' })
  assert.match(link, /^http:\/\/127\.0\.0\.1:\d+\/sign-in#code=[\w-]{43}$/)
  page = await newPage()
  await page.goto(link)
  await page.waitForURL('**/o/*')
  assert.doesNotMatch(await page.evaluate('location.href + document.cookie'), /code=|slipway/)
  const second = await newPage()
  await second.goto(link)
  await shows(second, /This link has been used/)
  await hasNoBarriers(second, 'sign-in')
  await second.context().close()
})

step('from an empty installation to an application of a git repository, with its log as it is built', async () => {
  await page.getByRole('button', { name: 'New project' }).first().click()
  await page.getByLabel('Name').fill('<script>alert(1)</script>')
  await page.getByRole('button', { name: 'Create' }).click()
  await page.waitForURL('**/p/*/environments')
  await hasNoBarriers(page, 'an empty project')
  await page.getByRole('button', { name: 'New environment' }).first().click()
  await page.getByLabel('Name').fill('staging')
  await page.getByRole('button', { name: 'Create' }).click()
  await page.waitForURL('**/e/*/services')
  environmentId = new URL(page.url()).pathname.split('/')[2]!
  await hasNoBarriers(page, 'an empty environment')
  await page.getByRole('link', { name: 'New service' }).click()
  await page.getByRole('link', { name: /Git repository/ }).click()
  await page.getByRole('textbox', { name: 'Repository' }).fill(git.url('shop'))
  await page.getByRole('button', { name: 'Look at the repository' }).click()
  await shows(page, 'Found')
  assert.equal(await page.getByLabel('Name').inputValue(), 'shop')
  await page.getByRole('textbox', { name: 'Port' }).fill('70000')
  await page.getByLabel('Name').fill('')
  await hasNoBarriers(page, 'create')
  await page.getByLabel('Name').fill('shop')
  await page.getByRole('textbox', { name: 'Port' }).fill('8080')
  await page.getByRole('button', { name: 'Create and deploy' }).click()
  await page.waitForURL('**/s/application/*/overview')
  await open(page, 'Deployments')
  await page.locator('table a.main').first().click()
  await shows(page, /Building|Build/)
  await state(page, 'Deployed')
  await hasNoBarriers(page, 'a deployment')
  await page
    .locator('.crumbs')
    .getByRole('link', { name: 'shop' })
    .or(page.getByRole('link', { name: 'All deployments' }))
    .first()
    .click()
})

step('what is wrong with a new version is said first, and the earlier one is one click away', async () => {
  await openPage(page, `${slipway.url}/e/${environmentId}/services`)
  await page.getByRole('link', { name: 'shop', exact: true }).click()
  await state(page, 'Running')
  await git.commit(
    'shop',
    { Dockerfile: `FROM ${busyboxImage}\nRUN echo the disk of the baker is full && false\n` },
    'Break it',
  )
  await page.getByRole('button', { name: 'Deploy', exact: true }).click()
  await agree(page, 'Deploy')
  await state(page, 'Build failed')
  const lastLines = page.locator('.note.bad').getByRole('region', { name: 'The last lines about shop' })
  await lastLines.getByText('the disk of the baker is full').first().waitFor()
  assert.match((await lastLines.textContent()) ?? '', /^(.+\n){1,8}$/)
  await hasNoBarriers(page, 'a failed service')
  await page.locator('.crumbs').getByRole('link', { name: 'staging' }).click()
  await page.locator('.note.bad', { hasText: 'Something needs attention' }).waitFor()
  await lastLines.getByText('the disk of the baker is full').first().waitFor()
  await hasNoBarriers(page, 'an environment with a failure')
  await page.locator('.note.bad').getByRole('link', { name: 'See the deployment' }).click()
  await shows(page, 'the disk of the baker is full')
  await page.locator('.note.bad', { hasText: 'The previous version is still running' }).waitFor()
  await hasNoBarriers(page, 'a failed deployment')

  await git.commit('shop', talking('second'), 'Say second')
  await openPage(page, `${slipway.url}/e/${environmentId}/services`)
  await page.getByRole('button', { name: 'Deploy', exact: true }).click()
  await agree(page, 'Deploy')
  await state(page, 'Deployed')
  await page.getByRole('link', { name: 'shop', exact: true }).click()
  await open(page, 'Deployments')
  await hasNoBarriers(page, 'deployments of a service')
  await page.getByRole('button', { name: 'Roll back to this' }).first().click()
  await agree(page, 'Roll back')
  const serving = page.locator('tr', { has: page.getByText('Serving') })
  await serving.filter({ hasText: 'Say first' }).first().waitFor()
})

step(
  'a variable makes the service out of date, within a second also for another tab, until it is deployed',
  async () => {
    const other = watched(await page.context().newPage())
    await openPage(other, page.url().replace(/\/\w+$/, '/overview'))
    await other.locator('.head h1').waitFor()
    await open(page, 'Variables')
    await page.getByRole('button', { name: 'New variable' }).click()
    await page.getByLabel('Key').fill('1 not a key')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.locator('[role=dialog] .mantine-InputWrapper-error, [role=dialog] .note.bad').first().waitFor()
    await page.getByLabel('Key').fill('GREETING')
    await page.getByLabel('Value').fill('<img src=x onerror=alert(1)>')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.locator('td', { hasText: 'GREETING' }).first().waitFor()
    await shows(page, 'GREETING was saved. shop gets the change with its next deployment.')
    await hasNoBarriers(page, 'variables')
    for (const each of [page, other]) await each.locator('.head .chip.warn', { hasText: 'Out of date' }).waitFor()
    await page.getByRole('button', { name: 'Deploy', exact: true }).click()
    await page.getByRole('dialog').getByText('GREETING').waitFor()
    await hasNoBarriers(page, 'a plan')
    await agree(page, 'Deploy')
    for (const each of [page, other]) await each.locator('.head .chip.warn').waitFor({ state: 'detached' })
    await other.close()
  },
)

step('the log is read as it is written, searched and held; what programs print is text', async () => {
  await open(page, 'Logs')
  await page.locator('.log-line', { hasText: '<b>second</b> line' }).first().waitFor()
  await page.getByLabel('Search the log').fill('line 2')
  await page.locator('.log mark').first().waitFor()
  assert.match(page.url(), /q=line/)
  await hasNoBarriers(page, 'logs')
  await page.getByLabel('Search the log').fill('')
  // A reader who was further up is back at the end, and stays there.
  await page.locator('label', { hasText: /^Follow$/ }).click()
  await page.getByRole('button', { name: 'Pause' }).click()
  await page.getByRole('button', { name: /Resume \(\d+ new\)/ }).click()
  await page.getByLabel('Follow', { exact: true }).and(page.locator(':checked')).waitFor()
  for (const [section, name] of [
    ['Overview', 'Instances'],
    ['Domains', 'No domains of your own'],
    ['Settings', 'Memory'],
  ] as const) {
    await open(page, section)
    await shows(page, new RegExp(name))
    await hasNoBarriers(page, section)
  }
  await page.getByLabel('Memory').fill('1')
  await page.getByRole('button', { name: 'Save' }).click()
  await page.locator('.mantine-InputWrapper-error').first().waitFor()
  await page.getByRole('button', { name: 'Discard' }).click()
})

interface ShownLine {
  at: string
  /** Its deployment; null for lines of the service. */
  of: string | null
  text: string
}

/** The rendered lines, from the first. */
const shownLines = (of: Page): Promise<ShownLine[]> =>
  of.evaluate(`[...document.querySelectorAll('.log-line')]
    .sort((a, b) => a.dataset.index - b.dataset.index)
    .map((line) => ({
      at: line.querySelector('.at').title,
      of: line.querySelector('.of-deployment')?.textContent ?? null,
      text: line.querySelector('.text').textContent,
    }))`)

/** Lines of deployments come after older lines, and before those of the same time or later. */
const standInPlace = (lines: readonly ShownLine[]): void => {
  for (const [index, next] of lines.slice(1).entries()) {
    const line = lines[index]!
    if (line.of !== null) assert.ok(line.at <= next.at, JSON.stringify([line, next]))
    else if (next.of !== null) assert.ok(line.at < next.at, JSON.stringify([line, next]))
  }
}

step('lines of deployments stand among those of the service by time, as they are written, if wanted', async () => {
  await open(page, 'Logs')
  await page.locator('.log-line', { hasText: '<b>second</b> line' }).first().waitFor()
  assert.equal(await page.locator('.log-line.deployment').count(), 0)
  const wish = page.getByRole('switch', { name: 'Deployments' })
  await wish.click()
  await page.waitForURL(/deployments=on/)
  const third = talking('third')
  const Dockerfile = third.Dockerfile!.replace('COPY', "RUN echo '<i>third</i> is built'\nCOPY")
  await git.commit('shop', { ...third, Dockerfile }, 'Say third')
  await page.getByRole('button', { name: 'Deploy', exact: true }).click()
  await agree(page, 'Deploy')
  const isMixed = async (): Promise<boolean> => {
    const lines = await shownLines(page)
    standInPlace(lines)
    return /sd+s/.test(lines.map(({ of }) => (of === null ? 's' : 'd')).join(''))
  }
  await until(isMixed, { timeoutMs: patienceMs, what: 'lines of the deployment between those of the service' })
  await page.locator('.log-line:not(.deployment)', { hasText: '<b>third</b> line' }).first().waitFor()

  await page.getByLabel('Search the log').fill('third</')
  const built = page.locator('.log-line.deployment', { hasText: '<i>third</i> is built' }).first()
  await built.waitFor()
  await built.locator('mark').first().waitFor()
  const found = await until(
    async () => {
      const lines = await shownLines(page)
      return lines.at(-1)?.of === null && lines
    },
    { what: 'lines of the deployment, then of the service' },
  )
  standInPlace(found)
  assert.match(found[0]!.of ?? '', /^Deployment #\d+$/)
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme })
    await hasNoBarriers(page, `a log with deployments, ${colorScheme}`)
  }
  await page.setViewportSize({ width: 375, height: 740 })
  await built
    .getByText(/^#\d+$/)
    .or(built.locator('.of-deployment'))
    .first()
    .waitFor()
  assert.equal(await page.evaluate('document.documentElement.scrollWidth > innerWidth'), false)
  await hasNoBarriers(page, 'a log with deployments, on a phone')
  await page.setViewportSize({ width: 1280, height: 720 })

  await built.getByRole('button').click()
  await page.waitForURL(/line=/)
  const address = new URL(page.url())
  address.searchParams.delete('q')
  const other = watched(await page.context().newPage())
  await openPage(other, address.href)
  await other.locator('.log-line.deployment.marked', { hasText: '<i>third</i> is built' }).waitFor()
  standInPlace(await shownLines(other))
  // A line of the first deployment, from which no log of the service is kept.
  const log = (await slipway.api('GET', `/environment/${environmentId}/logs?version=${environmentId}-1`)).body
  const old = log.find(({ details }: Json) => details.transmitter.type === 'Application')
  address.searchParams.set('line', `${Date.parse(old.timestamp)}-#1-1`)
  await openPage(other, address.href)
  await other.locator('.log-line.deployment.marked', { hasText: old.message.safe_message }).waitFor()
  await other.close()

  await wish.click()
  await page.locator('.log-line.deployment').first().waitFor({ state: 'detached' })
  assert.doesNotMatch(page.url(), /deployments=/)
  await page.locator('.log-line', { hasText: '<b>third</b> line' }).first().waitFor()
  await page.getByLabel('Search the log').fill('')
  await page.emulateMedia({ colorScheme: null })
})

step('the pages of the organization, search and help can be used, by keyboard too', async () => {
  const organizationId = (await slipway.api('GET', '/organization')).body.results[0].id
  for (const section of ['members', 'roles', 'tokens', 'webhooks', 'clusters', 'audit']) {
    await openPage(page, `${slipway.url}/o/${organizationId}/${section}`)
    await page.locator('table.list, .nothing h2').first().waitFor()
    await hasNoBarriers(page, section)
  }
  await page.keyboard.press('Control+k')
  await page.getByRole('combobox', { name: 'Search resources and actions' }).fill('staging')
  await page
    .getByRole('option', { name: /staging/ })
    .first()
    .waitFor()
  await hasNoBarriers(page, 'search')
  await page.keyboard.press('Enter')
  // A key goes to the visible page, and the address changes before its page is shown.
  await page.waitForURL(`**/e/${environmentId}/services`)
  await page.locator('.tabs').getByText('Deployments', { exact: true }).waitFor()
  // While it is closing, it would still get the key.
  await page.getByRole('combobox', { name: 'Search resources and actions' }).waitFor({ state: 'hidden' })
  await page.keyboard.press('d')
  await page.waitForURL(`**/e/${environmentId}/deployments`)
  await page.keyboard.press('Shift+?')
  await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor()
  await hasNoBarriers(page, 'help')
  await page.keyboard.press('Escape')
})

step('who may only read sees no button that would fail, and signing out leaves nothing on the screen', async () => {
  const organizationId = (await slipway.api('GET', '/organization')).body.results[0].id
  const made = await slipway.api('POST', `/organization/${organizationId}/apiToken`, {
    name: 'reader',
    scopes: ['Read'],
  })
  const reader = await newPage()
  await openPage(reader, `${slipway.url}/e/${environmentId}/services`)
  await reader.getByRole('textbox', { name: 'Token' }).fill(made.body.token)
  await reader.getByRole('button', { name: 'Sign in' }).click()
  await reader.getByRole('link', { name: 'shop', exact: true }).click()
  // The environment has such a tab too.
  await reader.waitForURL('**/s/application/*/overview')
  const forbidden = /Deploy$|New |Create|Save|Roll back|Delete|Import|More actions|Actions for|Add|Remove|Invite|Revoke/
  for (const section of ['Deployments', 'Logs', 'Variables', 'Domains', 'Settings']) {
    await open(reader, section)
    await reader.locator('table.list, .nothing, .log, form').first().waitFor()
    assert.equal(await reader.locator('main').getByRole('button', { name: forbidden }).count(), 0, section)
  }
  await reader.getByRole('button', { name: 'Account and appearance' }).click()
  await reader.getByText(`Slipway ${version}`, { exact: true }).waitFor()
  await reader.getByRole('menuitem', { name: 'Sign out' }).click()
  await reader.waitForURL('**/sign-in*')
  assert.doesNotMatch(await reader.content(), /shop/)
  await reader.goBack()
  await reader.waitForURL('**/sign-in*')
  await reader.context().close()
})

step('a restart of the server is survived without a reload', async () => {
  await openPage(page, `${slipway.url}/e/${environmentId}/services`)
  await page.getByRole('link', { name: 'shop', exact: true }).waitFor()
  await page.evaluate('window.notReloaded = true')
  await slipway.kill('SIGKILL')
  await shows(page, /The connection is lost/)
  await slipway.start()
  await page.locator('.banner').waitFor({ state: 'detached' })
  const { body } = await slipway.api('GET', `/environment/${environmentId}/services`)
  const { id } = body.results[0]
  await slipway.api('POST', `/application/${id}/stop`)
  await page.locator('td .state', { hasText: 'Stopped' }).waitFor()
  assert.equal(await page.evaluate('window.notReloaded'), true)
})

step('a delete asks for the name, and what is gone is gone from the list', async () => {
  await page.getByRole('link', { name: 'shop', exact: true }).click()
  await page.getByRole('button', { name: 'More actions' }).click()
  await page.getByRole('menuitem', { name: 'Delete' }).click()
  const dialog = page.getByRole('dialog')
  await hasNoBarriers(page, 'a delete')
  assert.equal(await dialog.getByRole('button', { name: 'Delete' }).isDisabled(), true)
  await dialog.getByLabel('Type shop to delete it').fill('shop')
  await dialog.getByRole('button', { name: 'Delete' }).click()
  await page.waitForURL('**/e/*/services')
  await shows(page, 'No services yet')
  assert.deepEqual(complaints, [])
})

const brotliBytes = (name: string): number =>
  statSync(fileURLToPath(new URL(`../../console/dist/assets/${name}.br`, import.meta.url))).size

step('the first page has at most 200 kB compressed, and the chunk of a route 80 kB', async () => {
  const fresh = await newPage()
  const loaded = new Set<string>()
  fresh.on('response', (answer) => {
    const { pathname } = new URL(answer.url())
    if (/^\/assets\/.*\.(js|css)$/.test(pathname)) loaded.add(pathname.slice('/assets/'.length))
  })
  await openPage(fresh, `${slipway.url}/sign-in`)
  await fresh.getByRole('button', { name: 'Sign in' }).waitFor()
  const first = [...loaded].reduce((sum, name) => sum + brotliBytes(name), 0)
  assert.ok(first > 20_000 && first <= 200_000, `${first} bytes`)
  const entry = [...loaded]
  const others = readdirSync(new URL('../../console/dist/assets', import.meta.url)).filter(
    (name) => name.endsWith('.js') && !entry.includes(name),
  )
  for (const name of others) assert.ok(brotliBytes(name) <= 80_000, `${name}: ${brotliBytes(name)} bytes`)
  await fresh.context().close()
})
