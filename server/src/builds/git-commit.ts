/** Commits as git prints them. Pure. */
import { storable } from '../lib/storable.ts'
import type { Commit } from './builder.ts'

export const commitFormat = '--format=%H%x00%ct%x00%an%x00%B'

const maxMessage = 4096

export const parseCommit = (text: string): Commit => {
  const [id = '', seconds = '', author = '', ...message] = text.split('\0')
  return {
    git_commit_id: id,
    message: storable(message.join(' ').trim().slice(0, maxMessage)),
    author_name: author.trim(),
    created_at: new Date(Number(seconds) * 1000).toISOString().replace('.000Z', 'Z'),
    tag: '',
  }
}

/** The same format many times over, each ended by a zero byte. */
export const parseCommits = (text: string): Commit[] => {
  const fields = text.split('\0')
  const commits: Commit[] = []
  for (let at = 0; at + 3 < fields.length; at += 4) commits.push(parseCommit(fields.slice(at, at + 4).join('\0')))
  return commits
}
