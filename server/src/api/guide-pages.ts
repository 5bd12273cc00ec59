/** The guides of docs/guides and their shell functions at `/guides/<name>`, as plain text, which every browser shows. */
import { readdirSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { FastifyInstance } from 'fastify'
import { cachedFor } from '../lib/time/cached.ts'
import type { Clock } from '../lib/time/clock.ts'
import { createDocument, sendDocument } from './documents.ts'

const folder = fileURLToPath(new URL('../../../docs/guides/', import.meta.url))

const readNames = (): string[] => {
  try {
    return readdirSync(folder).filter((name) => /^[\w-]+\.(md|sh)$/.test(name))
  } catch {
    return []
  }
}

export const addGuides = (app: FastifyInstance, clock: Clock): void => {
  for (const name of readNames()) {
    const made = cachedFor(clock, Number.POSITIVE_INFINITY, async () =>
      createDocument('text/plain; charset=utf-8', await readFile(join(folder, name))),
    )
    app.get(`/guides/${name}`, async (request, reply) => {
      const guide = await made()
      return sendDocument(request, reply.header('cache-control', 'no-cache'), guide)
    })
  }
}
