/** Plain values as block YAML. Text is always quoted as in JSON, which YAML reads the same way. */
const isEmpty = (value: unknown): boolean =>
  typeof value !== 'object' || value === null || Object.keys(value).length === 0

const lines = (value: unknown, indent: string): string[] => {
  if (Array.isArray(value)) return value.flatMap((item) => block(`${indent}-`, item, indent))
  return Object.entries(value as object).flatMap(([name, inner]) => block(`${indent}${keyOf(name)}:`, inner, indent))
}

const keyOf = (name: string): string => (/^[A-Za-z][\w-]*$/.test(name) ? name : JSON.stringify(name))

const block = (head: string, value: unknown, indent: string): string[] =>
  isEmpty(value) ? [`${head} ${JSON.stringify(value)}`] : [head, ...lines(value, `${indent}  `)]

export const toYaml = (value: object): string => `${lines(value, '').join('\n')}\n`
