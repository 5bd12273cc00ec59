/**
 * Clients whose types are generated from the public API: one word that it does not list breaks the whole answer for
 * them. They are recognized by the user agent that their libraries send.
 */
import type { Context } from './operations/operation.ts'

const agents = /^(CLI |Terraform provider |OpenAPI-Generator\/)/

export const isTypedClient = (headers: Context['headers']): boolean => agents.test(String(headers['user-agent'] ?? ''))
