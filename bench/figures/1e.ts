import { apiFigure, apiRows } from './api.ts'

/** Status of all services of an environment that has 50. */
export const figure = apiFigure('1e', apiRows('1e', 'status of 50 services', 1.3), 4000, {
  cost: async (subject) => subject.target('GET', `/environment/${await subject.environmentOf50()}/application/status`),
})
