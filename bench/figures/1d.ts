import { apiFigure, apiRows } from './api.ts'

/** Every variable that a service sees: 1,000 with aliases and overrides from three scopes. */
export const figure = apiFigure('1d', apiRows('1d', '1,000 variables', 1.2), 200, {
  cost: async (subject) =>
    subject.target('GET', `/application/${await subject.applicationOf1000()}/environmentVariable`),
})
