import { apiFigure, apiRows } from './api.ts'

/** A durable, audited create. */
export const figure = apiFigure('1c', apiRows('1c', 'create an environment', 1.5), 3000, {
  cost: async (subject) =>
    subject.target('POST', `/project/${subject.templates.projectId}/environment`, {
      body: JSON.stringify({ name: 'made-{n}', mode: 'DEVELOPMENT' }),
      expected: 201,
    }),
})
