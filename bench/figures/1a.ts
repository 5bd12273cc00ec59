import { apiFigure, apiRows } from './api.ts'

/** One environment by its id, token checked. */
export const figure = apiFigure('1a', apiRows('1a', 'GET one environment', 1.5), 8000, {
  cost: async (subject) => subject.target('GET', `/environment/${subject.templates.environmentId}`),
})
