/** Effects of advanced settings and custom domains on a real engine, behind the real router. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { page } from './support/docker/apps.ts'
import { busyboxImage } from './support/docker/busybox-image.ts'
import { createApplication, createPlace, deploy, hostOf, settle, visit } from './support/slipway/story.ts'
import { withSlipway } from './support/slipway/with-slipway.ts'
import { until } from './support/until.ts'

const { slipway, git } = await withSlipway()

test('a domain serves a running service within moments, and stops when it is removed', async () => {
  await git.createRepository('domain')
  await git.commit('domain', page('hello domain'), 'first')
  const place = await createPlace(slipway)
  const { id } = await createApplication(slipway, place, 'web', git.url('domain'))
  await deploy(slipway, id)
  assert.equal(await settle(slipway, id), 'DEPLOYED')
  assert.equal((await visit(slipway, 'www.shop.example')).status, 404)
  const path = `/application/${id}/customDomain`
  const made = await slipway.api('POST', path, { domain: 'www.shop.example', generate_certificate: false })
  assert.equal(made.status, 201)
  await until(async () => (await visit(slipway, 'www.shop.example')).text === 'hello domain', {
    timeoutMs: 10_000,
    what: 'the domain to serve',
  })
  assert.equal((await slipway.api('DELETE', `${path}/${made.body.id}`)).status, 204)
  await until(async () => (await visit(slipway, 'www.shop.example')).status === 404, {
    timeoutMs: 10_000,
    what: 'the domain to go',
  })
  assert.equal((await visit(slipway, hostOf(place, 'web'))).text, 'hello domain')
})

/** A web server that ignores SIGTERM. */
const stubborn = {
  Dockerfile: `FROM ${busyboxImage}\nCMD ["sh", "-c", "trap '' TERM; httpd -f -p 8080"]\n`,
}

test('a program that does not end when it is asked to is ended after its grace period', async () => {
  await git.createRepository('stubborn')
  await git.commit('stubborn', stubborn, 'first')
  const place = await createPlace(slipway)
  const { id } = await createApplication(slipway, place, 'stubborn', git.url('stubborn'))
  const settings = { 'deployment.termination_grace_period_seconds': 1 }
  assert.equal((await slipway.api('PUT', `/application/${id}/advancedSettings`, settings)).status, 201)
  await deploy(slipway, id)
  assert.equal(await settle(slipway, id), 'DEPLOYED')
  const beganMs = performance.now()
  assert.equal((await slipway.api('POST', `/application/${id}/stop`)).status, 202)
  assert.equal(await settle(slipway, id), 'STOPPED')
  // Without the setting it is ten seconds.
  const tookMs = performance.now() - beganMs
  assert.ok(tookMs > 900 && tookMs < 8000, `${tookMs} ms`)
})
