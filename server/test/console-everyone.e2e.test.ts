/**
 * The console for everyone: without a mouse, with the right to read only, and with hostile text on the page. Uses
 * simulated deployments: other tests cover the engine.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, before, test } from 'node:test'
import type { Browser, Locator, Page, Route } from 'playwright-core'
import { browserIsMissing, buildConsole, hasNoBarriers, openBrowser, openPage } from './support/browser.ts'
import { onlyAtNight } from './support/nightly.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { adminToken, type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { patience, until } from './support/until.ts'

const skip = browserIsMissing
const organizationSections = [
  ...['members', 'roles', 'tokens', 'clusters', 'credentials', 'registries', 'charts', 'git', 'pushes', 'webhooks'],
  ...['labels', 'audit', 'usage', 'general', 'system'],
]
const environmentSections = ['services', 'deployments', 'stages', 'previews', 'variables', 'settings']
const serviceSections = ['overview', 'deployments', 'logs', 'variables', 'domains', 'settings']

/** Markup, a mark that reverses the following text, an escape sequence, and an unbreakable word. */
const longWord = 'W'.repeat(150)
const hostile = `<img src=x onerror="hacked=1"><script>hacked=1</script>\u202egnp.exe ${longWord}`
/** Colors, a window title, and a link, as terminals encode them. */
const escaped = `\u001b[31mred\u001b[0m\u001b]0;title\u0007\u001b]8;;javascript:hacked=1\u001b\\here\u001b]8;;\u001b\\ `

let slipway: Slipway
let git: GitServer
let browser: Browser
let organizationId = ''
let projectId = ''
let environmentId = ''
let serviceId = ''
let readerToken = ''

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const furnish = async (): Promise<void> => {
  organizationId = (await send('GET', '/organization')).results[0].id
  const inOrganization = `/organization/${organizationId}`
  projectId = (await send('POST', `${inOrganization}/project`, { name: hostile, description: hostile })).id
  environmentId = (await send('POST', `/project/${projectId}/environment`, { name: hostile, mode: 'STAGING' })).id
  const registry = { name: hostile, kind: 'DOCKER_HUB', url: 'https://docker.io', config: {}, description: hostile }
  const registryId = (await send('POST', `${inOrganization}/containerRegistry`, registry)).id
  const service = { name: hostile, image_name: 'fake/talk', tag: '1', registry_id: registryId, ports: [] }
  serviceId = (await send('POST', `/environment/${environmentId}/container`, service)).id
  await send('POST', '/variable', {
    ...{ key: 'HOSTILE', value: `${hostile}${escaped}`.repeat(40).slice(0, 10_000), is_secret: false },
    ...{ variable_scope: 'ENVIRONMENT', variable_parent_id: environmentId },
  })
  await send('POST', `${inOrganization}/labelsGroups`, { name: hostile, labels: [{ key: 'team', value: 'a' }] })
  await send('POST', `${inOrganization}/gitToken`, { name: hostile, type: 'GITHUB', token: 'x', description: hostile })
  await send('POST', `${inOrganization}/gitWebhook`, { description: hostile })
  await send('POST', `${inOrganization}/customRole`, { name: hostile, description: hostile })
  await send('POST', `/environment/${environmentId}/deploymentStage`, { name: hostile })
  await send('POST', `/environment/${environmentId}/deploy`)
  await until(async () => (await send('GET', `/environment/${environmentId}/status`)).state === 'DEPLOYED', {
    what: 'the deployment to end',
    timeoutMs: 60_000,
  })
  const scopes = ['Read']
  readerToken = (await send('POST', `${inOrganization}/apiToken`, { name: hostile, scopes })).token
}

before(async () => {
  if (skip !== false) return
  await buildConsole()
  git = await startGitServer()
  await git.createRepository('shop')
  await git.commit('shop', { Dockerfile: 'FROM fake/talk\nEXPOSE 8080\n' }, 'Say first')
  slipway = await prepareSlipway({ fake: true })
  await slipway.start()
  await furnish()
  browser = await openBrowser()
})

after(async () => {
  await browser?.close()
  await slipway?.remove()
  await git?.close()
})

const signIn = async (token: string, width = 1440, colorScheme: 'light' | 'dark' = 'light'): Promise<Page> => {
  const viewport = { width, height: 900 }
  const page = await (await browser.newContext({ viewport, colorScheme, reducedMotion: 'reduce' })).newPage()
  page.setDefaultTimeout(20_000 * patience)
  await openPage(page, `${slipway.url}/sign-in`)
  await page.getByRole('textbox', { name: 'Token' }).fill(token)
  await page.keyboard.press('Enter')
  await page.waitForURL('**/o/*')
  return page
}

const pagesOf = (): string[] => [
  `/o/${organizationId}`,
  ...organizationSections.map((section) => `/o/${organizationId}/${section}`),
  ...['environments', 'variables', 'rules', 'settings'].map((section) => `/p/${projectId}/${section}`),
  ...environmentSections.map((section) => `/e/${environmentId}/${section}`),
  ...serviceSections.map((section) => `/s/container/${serviceId}/${section}`),
]

const settled = (page: Page): Promise<void> =>
  page.locator('main').locator('table.list, .nothing h2, form, .log, .stages, .tile').first().waitFor()

const visit = async (page: Page, path: string): Promise<void> => {
  await openPage(page, slipway.url + path)
  await settled(page)
}

/** Texts with a mark that reverses the text beside them in the same line. */
const turned = `(() => {
  const found = []
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.data.includes('\\u202e')) continue
    for (let each = node.parentElement; each; each = each.parentElement) {
      const { display, unicodeBidi } = getComputedStyle(each)
      if (/isolate|plaintext/.test(unicodeBidi)) break
      if (each.tagName === 'TEXTAREA' || each.tagName === 'TITLE') break
      if (display !== 'inline' && display !== 'contents') {
        if (each.textContent.trim() !== node.data.trim()) found.push(each.outerHTML.slice(0, 300))
        break
      }
    }
  }
  return found
})()`

/** Elements that make the page wider than its window; elements that scroll do not. */
const outside = `(() => {
  const { scrollWidth, clientWidth } = document.documentElement
  if (scrollWidth <= clientWidth) return []
  const scrolls = (element) => element !== document.body && getComputedStyle(element).overflowX !== 'visible'
  const isInside = (element) => element !== null && (scrolls(element) || isInside(element.parentElement))
  const wide = [...document.body.querySelectorAll('*')].filter(
    (each) => each.getBoundingClientRect().right > clientWidth + 1 && !isInside(each.parentElement),
  )
  return [clientWidth, scrollWidth, ...wide.slice(0, 5).map((each) => each.outerHTML.slice(0, 200))]
})()`

/** Links that do not lead to a page. */
const strange = `[...document.querySelectorAll('a[href], form[action], iframe')]
  .filter((each) => !/^https?:/.test(each.href ?? each.action ?? each.src))
  .map((each) => each.outerHTML.slice(0, 300))`

const isUnharmed = async (page: Page, what: string): Promise<void> => {
  assert.equal(await page.evaluate('window.hacked'), undefined, what)
  assert.equal(await page.locator('img[src="x"], main script').count(), 0, what)
  assert.deepEqual(await page.evaluate(strange), [], `${what}: a link that leads to no page`)
  assert.deepEqual(await page.evaluate(turned), [], `${what}: what stands beside it is turned around`)
  assert.deepEqual(await page.evaluate(outside), [], `${what} is wider than its window`)
}

const answerLong = async (route: Route, length: number): Promise<void> => {
  const response = await route.fetch()
  const text = await response.text()
  await route.fulfill({ response, body: text.replaceAll(longWord, 'W'.repeat(length)) })
}

/** As if names could be so long: text from git hosts, registries and clusters has other limits than the API. */
const lengthen = async (page: Page, length: number): Promise<void> => {
  await page.route(
    () => true,
    async (route) => {
      if (!['fetch', 'xhr'].includes(route.request().resourceType())) return route.fallback()
      // The test's own connection to the server may be closed as it is used.
      await answerLong(route, length)
        .catch(() => answerLong(route, length))
        // The page was left meanwhile; if not, it waits for its answer in vain.
        .catch(() => {})
    },
  )
  await visit(page, `/o/${organizationId}`)
  await page
    .locator('.tile', { hasText: 'W'.repeat(length) })
    .first()
    .waitFor()
}

for (const [width, scheme, length] of [
  [1440, 'light', longWord.length],
  [390, 'dark', 10_000],
] as const)
  test(`hostile text is shown as text and breaks no page, and axe finds nothing serious: ${width} px, ${scheme}, words of ${length} letters`, {
    // The narrow one with the longest words finds most.
    skip: skip || (width === 390 ? false : onlyAtNight),
  }, async () => {
    const page = await signIn(adminToken, width, scheme)
    if (length !== longWord.length) await lengthen(page, length)
    const dialogs: string[] = []
    page.on('dialog', (dialog) => dialogs.push(dialog.message()))
    for (const path of pagesOf()) {
      await visit(page, path)
      assert.deepEqual(await page.locator('.nothing[role=alert]').allTextContents(), [], `${path} cannot be shown`)
      await isUnharmed(page, path)
      await hasNoBarriers(page, path)
    }
    assert.deepEqual(dialogs, [])
    await page.context().close()
  })

/** A megabyte; and one that changes the color with each letter. */
const longLines = [`${escaped}${hostile}${'x'.repeat(1_000_000)}`, '\u001b[31mx\u001b[32my'.repeat(100_000)]

const showsLongLines = async (page: Page, what: string): Promise<void> => {
  const first = page.locator('.log-line .text').first()
  await first.waitFor()
  assert.match((await first.textContent()) ?? '', /^redhere <img src=x onerror/, what)
  await page.locator('.log-line .text', { hasText: /^xyxy/ }).first().waitFor()
  await isUnharmed(page, what)
  await page.getByRole('textbox', { name: 'Search the log' }).fill('onerror')
  await page.locator('.log-line mark', { hasText: 'onerror' }).first().waitFor()
  await page.getByRole('textbox', { name: 'Search the log' }).fill('')
  await page.locator('label', { hasText: /^Wrap$/ }).click()
  await isUnharmed(page, `${what}, not wrapped`)
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Download' }).click(),
  ])
  assert.match(download.suggestedFilename(), /^[^/\\<>\u202e]+\.log$/, what)
  const saved = readFileSync(await download.path(), 'utf8')
  assert.ok(saved.includes('redhere <img') && !saved.includes('\u001b') && !saved.includes('javascript:'), what)
}

test('log lines of a megabyte with escape sequences are text, break no page and are downloaded as text', {
  skip,
}, async () => {
  const page = await signIn(adminToken)
  await page.routeWebSocket(/\/deployment\/logs/, (socket) => {
    const details = { transmitter: { id: serviceId, name: hostile }, stage: { step: 'Build' } }
    const wire = { type: 'info', timestamp: new Date().toISOString(), details }
    socket.send(JSON.stringify(longLines.map((line) => ({ ...wire, message: { safe_message: line } }))))
  })
  await page.routeWebSocket(/\/service\/logs/, (socket) => {
    const wire = { created_at: Date.now(), pod_name: hostile, severity_text: 'INFO' }
    for (const message of longLines) socket.send(JSON.stringify({ ...wire, message }))
  })
  const { results } = await send('GET', `/environment/${environmentId}/deploymentHistoryV2`)
  const deployment = results[0].identifier.execution_id
  for (const path of [`/e/${environmentId}/deployments/${deployment}`, `/s/container/${serviceId}/logs`]) {
    await openPage(page, slipway.url + path)
    await showsLongLines(page, path)
  }
  await page.context().close()
})

test('hostile names are shown as text in dialogs and menus, and a sign-in link never leads to another host', {
  skip,
}, async () => {
  const page = await signIn(adminToken, 390)
  await visit(page, `/e/${environmentId}/services`)
  await page.keyboard.press('Control+k')
  await page.locator('.palette-item').first().waitFor()
  await isUnharmed(page, 'the search')
  await page.keyboard.press('Escape')
  // One that has ended before the page learned of it is not announced.
  const { registry } = await send('GET', `/container/${serviceId}`)
  const slow = { name: 'slow', image_name: 'fake/slow', tag: '3000', registry_id: registry.id, ports: [] }
  const { id: slowId } = await send('POST', `/environment/${environmentId}/container`, slow)
  await send('POST', `/container/${slowId}/deploy`, { image_tag: slow.tag })
  await page.locator('.toast').first().waitFor()
  await isUnharmed(page, 'a notice')
  await page.locator('main .head').getByRole('button', { name: 'More actions' }).click()
  await page.getByRole('menuitem', { name: 'Delete', exact: true }).click()
  await page.getByRole('dialog').waitFor()
  await isUnharmed(page, 'the question before a delete')
  await page.context().close()
  for (const to of [
    '//evil.example',
    '/\\evil.example',
    '/\t/evil.example',
    '\t//evil.example',
    '/.//evil.example',
    `${slipway.url}//evil.example`,
    'javascript:hacked=1',
  ]) {
    const fresh = await (await browser.newContext()).newPage()
    const left: string[] = []
    fresh.on('request', (request) => {
      if (new URL(request.url()).origin !== slipway.url) left.push(request.url())
    })
    await openPage(fresh, `${slipway.url}/sign-in?to=${encodeURIComponent(to)}`)
    await fresh.getByRole('textbox', { name: 'Token' }).fill(adminToken)
    await fresh.keyboard.press('Enter')
    await fresh.waitForURL('**/o/*')
    assert.deepEqual(left, [], to)
    await isUnharmed(fresh, to)
    await fresh.context().close()
  }
})

/** All buttons for a read-only user: to look, filter, copy or download. */
const harmless =
  /^(Copy|Change|Details.*|Deliveries|Payload|Read again|Show earlier ones|Compare.*|Wrap.*|Follow.*|Pause|Download.*|Earlier.*|Filter.*|Clear.*|Live|All|Time range.*|\d+|Options.*|Log.*|Newest.*|Older.*|Load older lines|Load the page again|[\d:.]+|Local.*|UTC.*|Copy .*|)$/i

interface Labelled {
  getAttribute(name: string): string | null
  textContent: string
}

for (const who of ['a token that may only read', 'the role of a viewer'])
  test(`${who} sees no button that would fail, on any page`, {
    skip: skip || (who === 'the role of a viewer' ? false : onlyAtNight),
  }, async () => {
    const viewer = '00000000-0000-4000-8000-000000000005'
    const token = who.startsWith('a token')
      ? readerToken
      : (await send('POST', `/organization/${organizationId}/apiToken`, { name: 'viewer', role_id: viewer })).token
    const page = await signIn(token)
    for (const path of pagesOf()) {
      await visit(page, path)
      const names = await page
        .locator('main')
        .locator('button:visible:not([disabled])')
        .evaluateAll((buttons: Labelled[]) =>
          buttons.map((each) => (each.getAttribute('aria-label') ?? each.textContent).trim()),
        )
      assert.deepEqual(
        names.filter((name) => !harmless.test(name)),
        [],
        path,
      )
      const toWrite = page.locator(
        'main a[href*="/new/"], main input[type=checkbox]:not([disabled]):not([aria-label^=Compare])',
      )
      // The buttons of the log change how it is shown.
      if (!path.endsWith('/logs')) assert.equal(await toWrite.count(), 0, path)
    }
    await page.context().close()
  })

const isFocused = (target: Locator): Promise<boolean> =>
  target.evaluate((element: { matches(selector: string): boolean }) => element.matches(':focus'))

/** The position of the stage with services. */
const stageOfServices = (stages: Locator): Promise<number> =>
  stages.evaluateAll((all: { querySelector(selector: string): unknown }[]) =>
    all.findIndex((each) => each.querySelector('[data-service]') !== null),
  )

/** Reaches it as a user without a mouse does. */
const reach = async (page: Page, target: Locator, key = 'Tab'): Promise<void> => {
  await target.waitFor()
  for (let steps = 0; steps < 150; steps += 1) {
    if (await isFocused(target)) return
    await page.keyboard.press(key)
  }
  assert.fail(`not reached by ${key}: ${target}`)
}

const press = async (page: Page, target: Locator, key = 'Enter'): Promise<void> => {
  await reach(page, target)
  await page.keyboard.press(key)
}

const button = (page: Page, name: string | RegExp): Locator => page.getByRole('button', { name, exact: true }).first()

const write = async (page: Page, label: string | RegExp, text: string): Promise<void> => {
  await reach(page, page.getByRole('textbox', { name: label }).first())
  await page.keyboard.press('Control+a')
  await page.keyboard.type(text)
}

const pick = async (page: Page, menu: string, item: string): Promise<void> => {
  await press(page, button(page, menu))
  await reach(page, page.getByRole('menuitem', { name: item, exact: true }), 'ArrowDown')
  await page.keyboard.press('Enter')
}

const agree = async (page: Page, name: string): Promise<void> => {
  const dialog = page.getByRole('dialog')
  await dialog
    .getByText(/interrupt/)
    .first()
    .waitFor()
  await press(page, dialog.getByRole('button', { name, exact: true }))
  await dialog.waitFor({ state: 'hidden' })
}

const state = (page: Page, word: string): Promise<void> => page.locator('.head .state', { hasText: word }).waitFor()

const tab = (page: Page, name: string): Promise<void> =>
  press(page, page.locator('.tabs').getByRole('link', { name, exact: true }))

test('everything from the first project to its deletion can be done by keyboard alone', { skip }, async () => {
  const page = await signIn(adminToken)
  await press(page, button(page, 'New project'))
  await write(page, 'Name', 'keys')
  await page.keyboard.press('Enter')
  await page.waitForURL('**/p/*/environments')
  await press(page, button(page, 'New environment'))
  await write(page, 'Name', 'staging')
  await page.keyboard.press('Enter')
  await page.waitForURL('**/e/*/services')
  const environment = page.url()

  await press(page, page.getByRole('link', { name: 'New service' }))
  await press(page, page.getByRole('link', { name: /Git repository/ }).first())
  await write(page, 'Repository', git.url('shop'))
  await press(page, button(page, 'Look at the repository'))
  await page.getByText('Found').first().waitFor()
  await press(page, button(page, 'Create and deploy'))
  await page.waitForURL('**/s/application/*/overview')
  await state(page, 'Running')

  await tab(page, 'Deployments')
  await press(page, page.locator('table a.main').first())
  await page.locator('.log-line').first().waitFor()
  await page.keyboard.press('e')
  await page.waitForURL(environment)

  await git.commit('shop', { Dockerfile: 'FROM fake/crash\nEXPOSE 8080\n' }, 'Break it')
  await press(page, button(page, 'Deploy'))
  await agree(page, 'Deploy')
  await press(page, page.locator('.note.bad').getByRole('link', { name: 'See the deployment' }))
  await page.keyboard.press('e')
  await page.waitForURL(environment)

  await git.commit('shop', { Dockerfile: 'FROM fake/talk\nEXPOSE 8080\nLABEL version=2\n' }, 'Mend it')
  await press(page, button(page, 'Deploy'))
  await agree(page, 'Deploy')
  await state(page, 'Deployed')
  await press(page, page.getByRole('link', { name: 'shop', exact: true }))
  await tab(page, 'Deployments')
  await press(page, button(page, 'Roll back to this'))
  await agree(page, 'Roll back')
  await page.locator('tr', { hasText: 'Serving' }).first().waitFor()
  await tab(page, 'Variables')
  await press(page, button(page, 'New variable'))
  await write(page, 'Key', 'GREETING')
  await write(page, 'Value', 'hello')
  await press(page, button(page, 'Save'))
  await page.locator('.head .chip.warn', { hasText: 'Out of date' }).waitFor()
  await tab(page, 'Logs')
  await write(page, 'Search the log', 'line')
  await page.locator('.log mark').first().waitFor()

  await page.keyboard.press('Escape')
  await openPage(page, environment)
  await press(page, button(page, 'Clone'))
  await write(page, 'Name', 'copy')
  await page.keyboard.press('Enter')
  await page.waitForURL((url) => url.pathname.endsWith('/services') && url.href !== environment)
  await page.getByRole('link', { name: 'shop', exact: true }).waitFor()
  await tab(page, 'Stages')
  const service = page.locator('[data-service]')
  const stages = page.locator('.stages > section')
  const before = await stageOfServices(stages)
  await press(page, service, 'ArrowLeft')
  await until(async () => (await stageOfServices(stages)) !== before, { what: 'the service in another stage' })
  await until(() => isFocused(service), { what: 'the service, in its new stage, to have the focus' })
  await tab(page, 'Services')
  await press(page, page.getByRole('checkbox', { name: 'Choose shop' }), 'Space')
  await press(page, page.getByLabel('Chosen services').getByRole('button', { name: 'Delete' }))
  await write(page, /^Type shop/, 'shop')
  await agree(page, 'Delete')
  await page.getByText('No services yet').waitFor()

  await openPage(page, environment)
  await pick(page, 'More actions', 'Stop')
  await agree(page, 'Stop')
  await state(page, 'Stopped')
  await pick(page, 'More actions', 'Delete')
  await write(page, /^Type staging/, 'staging')
  await agree(page, 'Delete')
  await page.waitForURL('**/p/*/environments')
  await page.context().close()
})
