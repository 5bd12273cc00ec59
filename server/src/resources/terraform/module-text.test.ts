import assert from 'node:assert/strict'
import { test } from 'node:test'
import { patience } from '../../../test/support/until.ts'
import { readDeclarations, readValues } from './module-text.ts'

test('values are read as they are written: texts without quotes, the rest as it is', () => {
  const text = `
# a comment = "no"
region = "eu-west-3" // here
count=3
quoted = "a \\"b\\" = {"
flag  = true # yes
list = [
  "a", # inner
  "b }",
]
map = { a = 1, "b" = { c = 2 } }
/* block
hidden = "no"
*/
script = <<-EOT
  one = 1
  EOT
last = null`
  assert.deepEqual(readValues('x.tfvars', text), {
    region: 'eu-west-3',
    count: '3',
    quoted: 'a "b" = {',
    flag: 'true',
    list: '[\n  "a", # inner\n  "b }",\n]',
    map: '{ a = 1, "b" = { c = 2 } }',
    script: '  one = 1\n',
    last: 'null',
  })
  assert.deepEqual(readValues('x.tfvars.json', '{"a":"b","c":[1]}'), { a: 'b', c: '[1]' })
  for (const bad of ['[1]', '{', 'null']) assert.deepEqual(readValues('x.tfvars.json', bad), {})
})

test('no text takes long to read, however it is written', () => {
  const worst = [
    ' '.repeat(60_000),
    '(\n'.repeat(30_000),
    '<<A\n'.repeat(15_000),
    '"a" '.repeat(15_000),
    '{['.repeat(30_000),
  ]
  const start = performance.now()
  for (let file = 0; file < 50; file += 1)
    for (const text of worst) {
      readValues('x.tfvars', `x = a${text}b`)
      readDeclarations('x.tf', `variable "x" {\ndefault = a${text}b\n}`)
    }
  assert.ok(performance.now() - start < 30_000)
})

test('a module lists the variables that it declares, and no default of a sensitive one', () => {
  const text = `
terraform { required_version = ">= 1" }
variable "name" {
  type        = object({ a = string })
  description = "What it is { called"
  default     = "x"
}
variable "secret" {
  sensitive = true
  default   = "canary"
  validation {
    condition     = length(var.secret) > 3
    error_message = "variable \\"fake\\" {"
  }
}
variable "none" { nullable = false }
variable open {
}
locals { variable = { "y" = 1 } }
`
  const found = readDeclarations('main.tf', text)
  assert.deepEqual(
    found.map(({ key, sensitive, nullable, default: value, description }) => [
      key,
      sensitive,
      nullable,
      value,
      description,
    ]),
    [
      ['name', false, true, 'x', 'What it is { called'],
      ['secret', true, true, null, null],
      ['none', false, false, null, null],
      ['open', false, true, null, null],
    ],
  )
  assert.doesNotMatch(JSON.stringify(found), /canary/)
})

test('whatever the text is, reading it ends soon', () => {
  for (const text of [
    '"'.repeat(60_000),
    '{'.repeat(60_000),
    'a '.repeat(30_000),
    '<<A\n'.repeat(15_000),
    '/*'.repeat(30_000),
  ]) {
    const begun = performance.now()
    readValues('x.tfvars', text)
    readDeclarations('x.tf', `variable "a" {${text}`)
    assert.ok(performance.now() - begun < 2000 * patience, text.slice(0, 4))
  }
})
