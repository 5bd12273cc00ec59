import { request } from 'undici'
import type { Subject } from '../subject.ts'
import { apiFigure, apiRows } from './api.ts'

const list = async (subject: Subject) => subject.target('GET', `/project/${await subject.projectOf100()}/environment`)

const one = async (subject: Subject) => subject.target('GET', `/environment/${subject.templates.environmentId}`)

/** The same list, asked with the tag that its last answer had. */
const unchanged = async (subject: Subject) => {
  const { origin, path, headers } = await list(subject)
  const answer = await request(origin + path, { headers })
  await answer.body.dump()
  const { etag } = answer.headers
  if (typeof etag !== 'string') throw new Error('the list has no ETag')
  return subject.target('GET', path, { headers: { 'if-none-match': etag }, expected: 304 })
}

/** A list of 100 out of 10,000; and its 304, set against the floor's GET of one. */
export const figure = apiFigure(
  '1b',
  [
    ...apiRows('1b', 'list 100 of 10,000 environments', 1.3),
    {
      id: '1b-304',
      what: 'the same, 304 (floor: GET one)',
      unit: 'µs',
      goal: { kind: 'ratio', value: 2 },
      key: 'same',
    },
  ],
  1500,
  { cost: list, same: one },
  { cost: list, same: unchanged },
)
