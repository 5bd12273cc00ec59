/** Who asks: the holder of an API token, or an account. */
import type { Role, Scope } from './permissions.ts'

/** Somebody who signed in with the OIDC issuer. */
export interface Account {
  id: string
  /** Null unless the issuer says that the address is theirs. */
  email: string | null
}

export interface Membership {
  organizationId: string
  role: Role
}

/** Who asks: the holder of an API token, or an account. */
export interface Principal {
  /** Id of the token or of the account. */
  tokenId: string
  name: string
  /** The caller's own organization; once the gate has found the row that a request is about, the organization of that. */
  organizationId: string
  /** What cannot be told by a role: a role's holders have here what comes nearest to it. */
  scopes: ReadonlySet<Scope>
  createdBy: string | null
  expiresAt: Date | null
  /** Decides instead of the scopes; null for a token with scopes, and for an account that is no member. */
  role: Role | null
  /** Scopes that narrow the role of a token that has both; null where nothing narrows it. */
  within: ReadonlySet<Scope> | null
  /** Null for an API token. */
  account: Account | null
  /** Of an account, the oldest first. */
  memberships: readonly Membership[]
  /** Sees every organization of this installation, and may create them. */
  isOperator: boolean
}
