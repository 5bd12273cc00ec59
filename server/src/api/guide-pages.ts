/** The guides of docs/guides and their shell functions at `/guides/<name>`, as plain text, which every browser shows. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { FastifyInstance } from 'fastify'

const folder = fileURLToPath(new URL('../../../docs/guides/', import.meta.url))

const readNames = (): string[] => {
  try {
    return readdirSync(folder).filter((name) => /^[\w-]+\.(md|sh)$/.test(name))
  } catch {
    return []
  }
}

export const addGuides = (app: FastifyInstance): void => {
  for (const name of readNames())
    app.get(`/guides/${name}`, (_request, reply) =>
      reply.header('content-type', 'text/plain; charset=utf-8').send(readFileSync(join(folder, name))),
    )
}
