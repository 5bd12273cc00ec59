/** The use of the console while it is measured: by keys, clicks and the wheel, like a person. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Page } from 'playwright-core'

/** As fast as one types well; then as fast as a key repeats that is held. */
export const type = async (page: Page, label: string, text: string): Promise<void> => {
  await page.getByLabel(label, { exact: true }).click()
  await page.keyboard.type(text, { delay: 90 })
  for (const _ of text) await page.keyboard.press('Backspace', { delay: 30 })
}

/** A wheel that is spun: 6,000 pixels a second, mostly downwards. */
export const scroll = async (page: Page, times: number): Promise<void> => {
  await page.mouse.move(700, 500)
  for (let turn = 0; turn < times; turn += 1) {
    await page.mouse.wheel(0, turn % 20 < 14 ? 240 : -240)
    await pause(40)
  }
}

const toTop = (page: Page): Promise<unknown> => page.evaluate('scrollTo(0, 0)')

/** The search for everything by name. */
const find = async (page: Page, text: string): Promise<void> => {
  const field = page.getByRole('combobox', { name: 'Search resources and actions' })
  await page.keyboard.press('Control+K')
  await field.waitFor()
  await page.keyboard.type(text, { delay: 90 })
  await page.keyboard.press('Escape')
  await field.waitFor({ state: 'hidden' })
}

const tab = async (page: Page, name: string, row: string): Promise<void> => {
  await page.locator('.tabs').getByRole('link', { name, exact: true }).click()
  await page.locator(row).nth(5).waitFor()
}

const serviceRow = 'table.services tbody tr'
const variableRow = 'table.list:not(.services) tbody tr'

export const openServices = async (page: Page, url: string, environmentId: string): Promise<void> => {
  await page.goto(`${url}/e/${environmentId}/services`)
  await page.locator(serviceRow).nth(5).waitFor()
}

/** Typing, scrolling, choosing all, searching, and going from tab to tab with everything that there is. */
export const useTables = async (page: Page): Promise<void> => {
  await type(page, 'Filter services', 'copy-12')
  await scroll(page, 60)
  await toTop(page)
  const all = page.locator('table.services thead input[type=checkbox]')
  for (const _ of [0, 1]) await all.click()
  await find(page, 'copy-42')
  for (let turn = 0; turn < 3; turn += 1) {
    await tab(page, 'Variables', variableRow)
    if (turn === 0) {
      await type(page, 'Filter variables', 'environment_4')
      await scroll(page, 60)
      await toTop(page)
    }
    await tab(page, 'Services', serviceRow)
  }
}

const press = (page: Page, label: RegExp): Promise<void> => page.locator('label', { hasText: label }).click()

/** Searches the log, filters, holds and scrolls it, until `isOver`. */
export const useLog = async (page: Page, isOver: () => boolean): Promise<void> => {
  await page.locator('.log-line').nth(10).waitFor()
  while (!isOver()) {
    await type(page, 'Search the log', '77')
    await press(page, /^Errors$/)
    await press(page, /^All$/)
    await page.getByRole('button', { name: 'Pause' }).click()
    await scroll(page, 10)
    await page.getByRole('button', { name: /Resume/ }).click()
    for (const _ of [0, 1]) await press(page, /^Wrap$/)
    await pause(400)
    if (!(await page.getByLabel('Follow', { exact: true }).isChecked())) await press(page, /^Follow$/)
  }
}
