/** Certificates that users upload for their domains: checks, and rows. */
import Type from 'typebox'
import type { Context } from '../../api/operations/operation.ts'
import { Secret, Text } from '../../api/operations/schema.ts'
import { countCertificates, uploadedKeyPlace } from '../../certificates/rows.ts'
import { conflict, invalidField } from '../../lib/errors.ts'
import { limitReached, takeTurns, usualLimits } from '../../limits/limits.ts'
import { readChain, refuseCertificate, refuseOrder } from '../../router/tls/check-certificate.ts'
import type { Queryable } from '../../store/database.ts'
import type { CustomDomain } from './rows.ts'

export const UploadBody = Type.Object(
  {
    certificate: Text(65_536, {
      minLength: 1,
      description:
        'PEM: the certificate of the domain first, then those of its issuers in order, at most ten; RSA of 2048 to 4096 bits, or ECDSA on P-256, P-384 or P-521.',
    }),
    private_key: Secret(8192),
  },
  { title: 'CustomDomainCertificateRequest' },
)

export type Upload = { certificate: string; private_key: string }

interface Checked {
  chain: string
  sealedKey: string
  notBefore: Date
  notAfter: Date
}

const refuse = (field: string, why: string): never => {
  throw invalidField(field, `cannot be served for the domain: ${why}`)
}

/** The certificate as it is stored; throws a 400 for one that cannot be served. */
export const checkUpload = async (context: Context<Upload>, { id, domain }: CustomDomain): Promise<Checked> => {
  const { parts, principal, body } = context
  const { certificate, private_key: key } = body
  const why = await refuseCertificate(domain, { certificate, key })
  if (why !== null) refuse(/^its (RSA )?key|curve/.test(why) ? '/private_key' : '/certificate', why)
  const chain = readChain(certificate)!
  const wrong = refuseOrder(chain)
  if (wrong !== null) refuse('/certificate', wrong)
  const [notBefore, notAfter] = [new Date(chain[0]!.validFrom), new Date(chain[0]!.validTo)]
  const now = parts.clock.now()
  if (notAfter <= now) refuse('/certificate', `it expired at ${notAfter.toISOString()}`)
  if (notBefore > now) refuse('/certificate', `it is not valid before ${notBefore.toISOString()}`)
  if (chain.slice(1).some(({ validTo }) => new Date(validTo) <= now))
    refuse('/certificate', 'a certificate of its issuers has expired')
  const sealedKey = await parts.sealer.seal(principal.organizationId, uploadedKeyPlace(id), key)
  // From the parsed certificates, without other parts of the text.
  return { chain: chain.map(String).join(''), sealedKey, notBefore, notAfter }
}

export const saveUpload = async (
  tx: Queryable,
  { parts, principal: { organizationId } }: Pick<Context, 'parts' | 'principal'>,
  { id, domain, certificate }: CustomDomain,
  { chain, sealedKey, notBefore, notAfter }: Checked,
): Promise<void> => {
  // It was checked for this name, which may have been changed since, and may belong to another service by now.
  const [still] = await tx.query('select 1 from custom_domain where id = $1 and domain = $2 for update', [id, domain])
  if (still === undefined)
    throw conflict('domain_changed', 'The domain was changed or removed meanwhile: read it, and try again.')
  await takeTurns(tx, organizationId, 'certificates')
  const most = (parts.settings.limits ?? usualLimits).certificates
  const used = await countCertificates(tx, organizationId)
  if (most > 0 && used >= most && certificate?.expires_at == null) throw limitReached('certificates', most, used + 1)
  await tx.query(
    `insert into uploaded_certificate (id, organization_id, host, chain, chain_key, not_before, not_after)
     values ($1, $2, $3, $4, $5, $6, $7)
     on conflict (id) do update set host = excluded.host, chain = excluded.chain, chain_key = excluded.chain_key,
       not_before = excluded.not_before, not_after = excluded.not_after, created_at = clock_timestamp()`,
    [id, organizationId, domain, chain, sealedKey, notBefore, notAfter],
  )
}

export const removeUpload = (tx: Queryable, id: string): Promise<unknown> =>
  tx.query('delete from uploaded_certificate where id = $1', [id])
