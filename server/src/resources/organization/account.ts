/** The caller's own account: what the issuer says about it, and the one address it can set itself. */
import Type from 'typebox'
import { type Operation, operation, ownOrganization, type Principal } from '../../api/operations/operation.ts'
import { Maybe, Text, Timestamp, Uuid } from '../../api/operations/schema.ts'
import { forbidden } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import { timestampSql } from '../../store/tree.ts'

const common = { path: '/account', tag: 'Account Info', owner: ownOrganization, status: 200 as const }

const AccountInfo = Type.Object({
  id: Uuid(),
  created_at: Timestamp(),
  nickname: Text(),
  first_name: Text(),
  last_name: Text(),
  profile_picture_url: Text(2048),
  communication_email: Text(320),
})

const readAccount = `select json_build_object('id', a.id, 'created_at', ${timestampSql('a.created_at')},
    'nickname', coalesce(a.nickname, a.name, ''), 'first_name', coalesce(a.first_name, ''),
    'last_name', coalesce(a.last_name, ''), 'profile_picture_url', coalesce(a.picture, ''),
    'communication_email', coalesce(a.communication_email, a.email, '')) as record
  from account a where a.id = $1`

/** A token has only a name, and nothing else that an account has. */
const readToken = `select json_build_object('id', t.id, 'created_at', ${timestampSql('t.created_at')}, 'nickname', t.name,
    'first_name', '', 'last_name', '', 'profile_picture_url', '', 'communication_email', '') as record
  from api_token t where t.id = $1`

export const showAccount = async (db: Queryable, { account, tokenId }: Principal) =>
  (
    await db.query<{ record: Type.Static<typeof AccountInfo> }>(account === null ? readToken : readAccount, [tokenId])
  )[0]!.record

const read = operation({
  ...common,
  id: 'getAccountInformation',
  method: 'GET',
  summary: "Read the caller's account; for an API token, its name",
  scope: 'Read',
  area: 'self',
  answer: AccountInfo,
  run: ({ db, principal }) => showAccount(db, principal),
})

const edit = operation({
  ...common,
  id: 'editAccountInformation',
  method: 'PUT',
  summary: 'Set the address that notifications go to',
  scope: 'Admin',
  area: 'self',
  body: Type.Object({
    communication_email: Maybe(
      Type.String({ maxLength: 320, pattern: '^[^@\\s\\u0000-\\u001f]+@[^@\\s\\u0000-\\u001f]+$' }),
    ),
  }),
  answer: AccountInfo,
  async run({ db, principal, body }) {
    if (principal.account === null) throw forbidden('An API token has no account to change.')
    await db.query(
      `update account set communication_email = coalesce($2, communication_email), updated_at = clock_timestamp()
       where id = $1`,
      [principal.account.id, body.communication_email ?? null],
    )
    return showAccount(db, principal)
  },
})

export const accountOperations: Operation[] = [read, edit]
