/**
 * The files of the console, from its build: hashed names that never change, each also compressed, and one page for
 * every address. Promises that only files that were in the folder at the start are served, by exact name, so that no
 * path leads out of it; keeps none of them in memory. Without a build there is no console.
 */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { extname, join } from 'node:path'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { type Body, type Document, type Encoding, etagOf, sendDocument } from '../documents.ts'

export interface Assets {
  /** Sends the page, whatever the address; the page finds out what to show. */
  sendPage(request: FastifyRequest, reply: FastifyReply): FastifyReply
  /** Sends a file of this name; null if there is none. */
  sendFile(request: FastifyRequest, reply: FastifyReply, name: string): FastifyReply | null
}

const endings: Record<Encoding, string> = { br: '.br', gzip: '.gz', identity: '' }

const types: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
}

/** No script, style or frame but our own; nothing of another host. */
export const pageRules: Readonly<Record<string, string>> = {
  'default-src': "'none'",
  'script-src': "'self'",
  'style-src': "'self'",
  'img-src': "'self' data:",
  'font-src': "'self'",
  'connect-src': "'self'",
  'base-uri': "'none'",
  'form-action': "'none'",
  'frame-ancestors': "'none'",
}

export const policyOf = (rules: Readonly<Record<string, string>>): string =>
  Object.entries(rules)
    .map((rule) => rule.join(' '))
    .join('; ')

const pagePolicy = policyOf(pageRules)

const readAsset = (folder: string, name: string, there: ReadonlySet<string>): Document => {
  const path = join(folder, name)
  const bodies = new Map<Encoding, Body>()
  for (const [encoding, ending] of Object.entries(endings) as [Encoding, string][])
    if (there.has(name + ending)) bodies.set(encoding, { path: path + ending, bytes: statSync(path + ending).size })
  return { type: types[extname(name)]!, etag: etagOf(readFileSync(path)), bodies }
}

const readFolder = (folder: string): Map<string, Document> => {
  const there = new Set(readdirSync(folder))
  const names = [...there].filter((name) => types[extname(name)] !== undefined)
  return new Map(names.map((name) => [name, readAsset(folder, name, there)]))
}

export const hasConsole = (folder: string | undefined): boolean =>
  folder !== undefined && existsSync(join(folder, 'index.html'))

/** The build in a folder: `index.html`, and `assets/` beside it; null if there is none. */
export const readAssets = (folder: string): Assets | null => {
  let files: Map<string, Document>
  let page: Document | undefined
  try {
    files = readFolder(join(folder, 'assets'))
    page = readFolder(folder).get('index.html')
  } catch {
    return null
  }
  if (page === undefined) return null
  return {
    sendPage(request, reply) {
      reply.headers({
        'content-security-policy': pagePolicy,
        'cache-control': 'no-cache',
        'cross-origin-opener-policy': 'same-origin',
        'cross-origin-resource-policy': 'same-origin',
      })
      // Programs get the API's answer at the same address.
      return sendDocument(request, reply, page, ['Accept'])
    },
    sendFile(request, reply, name) {
      const asset = files.get(name)
      if (asset === undefined) return null
      reply.headers({
        'cache-control': 'public, max-age=31536000, immutable',
        'cross-origin-resource-policy': 'same-origin',
      })
      return sendDocument(request, reply, asset)
    },
  }
}
