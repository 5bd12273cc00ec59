import assert from 'node:assert/strict'
import { test } from 'node:test'
import { signAws } from './aws-signature.ts'

// From the test suite that AWS publishes for version 4: get-vanilla, post-vanilla, post-x-www-form-urlencoded,
// get-vanilla-query-order-key-case.
const keys = { accessKey: 'AKIDEXAMPLE', secretKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY' }
const now = new Date('2015-08-30T12:36:00Z')
const url = new URL('https://example.amazonaws.com/')
const place = { region: 'us-east-1', service: 'service' }

test('signatures are those that AWS publishes for its examples', () => {
  const nothing = { url, headers: {}, body: '', ...place }
  const form = { 'content-type': 'application/x-www-form-urlencoded' }
  const signatureOf = (request: Parameters<typeof signAws>[0]): string =>
    signAws(request, keys, now).authorization!.split('Signature=')[1]!
  assert.deepEqual(signAws({ ...nothing, method: 'GET' }, keys, now), {
    'x-amz-date': '20150830T123600Z',
    authorization:
      'AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31',
  })
  const asked = new URL('https://example.amazonaws.com/?Param2=value2&Param1=value1')
  assert.equal(
    signatureOf({ ...nothing, method: 'GET', url: asked }),
    'b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500',
  )
  assert.equal(
    signatureOf({ ...nothing, method: 'POST' }),
    '5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b',
  )
  assert.equal(
    signatureOf({ ...nothing, method: 'POST', headers: form, body: 'Param1=value1' }),
    'ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a',
  )
})
