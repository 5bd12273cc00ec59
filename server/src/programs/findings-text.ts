/** The findings of the doctor as lines for a terminal. Pure. */
import type { Finding, findingStates } from '../lib/finding.ts'

const stateWidth = 9
const titleWidth = 17
const leastWidth = 60

const wrap = (text: string, width: number): string[] => {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(/\s+/)) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line)
      line = ''
    }
    line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line]
}

const cut = (text: string, width: number): string => (text.length <= width ? text : `${text.slice(0, width - 1)}…`)

/** What is well takes one line; a problem takes as many as it needs, and its mending follows. */
export const findingText = ({ state, title, message, mending }: Finding, columns: number): string => {
  const width = Math.max(leastWidth, columns) - stateWidth - titleWidth
  const head = state.padEnd(stateWidth) + title.padEnd(titleWidth)
  if (mending === null) return head + cut(message, width)
  const indent = ' '.repeat(stateWidth + titleWidth)
  const [first, ...rest] = wrap(message, width)
  const [way, ...more] = wrap(mending, width - 2)
  return [
    head + first,
    ...rest.map((line) => indent + line),
    `${indent}→ ${way}`,
    ...more.map((line) => `${indent}  ${line}`),
  ].join('\n')
}

const count = (findings: readonly Finding[], state: (typeof findingStates)[number]): number =>
  findings.filter((each) => each.state === state).length

export const summaryOf = (findings: readonly Finding[]): string => {
  const [bad, doubtful] = [count(findings, 'FAILED'), count(findings, 'WARNING')]
  if (bad + doubtful === 0) return 'Nothing is wrong.'
  return `${bad} failed, ${doubtful} ${doubtful === 1 ? 'warning' : 'warnings'}. docs/guides/doctor.md says more about each.`
}
