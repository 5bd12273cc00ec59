/** The options of every TLS connection of the router. */
import { constants } from 'node:crypto'
import { createSecureContext, type SecureContext, type SecureContextOptions } from 'node:tls'
import { words } from '../../lib/words.ts'
import type { KeyPair } from './check-certificate.ts'

export const tlsOptions: SecureContextOptions = {
  minVersion: 'TLSv1.2',
  maxVersion: 'TLSv1.3',
  // Those with forward secrecy and authenticated encryption.
  ciphers: words(
    'TLS_AES_128_GCM_SHA256 TLS_AES_256_GCM_SHA384 TLS_CHACHA20_POLY1305_SHA256 ECDHE-ECDSA-AES128-GCM-SHA256',
    'ECDHE-RSA-AES128-GCM-SHA256 ECDHE-ECDSA-AES256-GCM-SHA384 ECDHE-RSA-AES256-GCM-SHA384',
    'ECDHE-ECDSA-CHACHA20-POLY1305 ECDHE-RSA-CHACHA20-POLY1305',
  ).join(':'),
  // A client could make us compute one handshake after the other on a connection.
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
}

export const contextOf = ({ certificate, key }: KeyPair): SecureContext =>
  createSecureContext({ ...tlsOptions, cert: certificate, key })
