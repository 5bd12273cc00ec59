/** The caller: an API token or an account. */
import type { Role, Scope } from './permissions.ts'

export interface Account {
  id: string
  /** Null unless the issuer has verified the address. */
  email: string | null
}

export interface Membership {
  organizationId: string
  role: Role
}

/** The caller: an API token or an account. */
export interface Principal {
  /** Id of the token or of the account. */
  tokenId: string
  name: string
  /** The caller's own organization; once the gate has found the row of a request, the organization of that row. */
  organizationId: string
  /** Scopes; for a caller with a role, the ones closest to that role. */
  scopes: ReadonlySet<Scope>
  createdBy: string | null
  expiresAt: Date | null
  /** Decides instead of the scopes; null for a token with scopes, and for an account that is not a member. */
  role: Role | null
  /** Scopes that narrow the role of a token that has both; null if nothing does. */
  within: ReadonlySet<Scope> | null
  /** Null for an API token. */
  account: Account | null
  /** An account's memberships, oldest first. */
  memberships: readonly Membership[]
  /** Sees every organization of this installation, and may create them. */
  isOperator: boolean
}

export const actorOf = ({ account, tokenId }: Principal): { actorType: 'API_TOKEN' | 'USER'; actorId: string } => ({
  actorType: account === null ? 'API_TOKEN' : 'USER',
  actorId: tokenId,
})
