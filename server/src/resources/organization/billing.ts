/**
 * The answers to consoles of the public API about billing and sign-up forms: there are no plans, costs or forms here.
 * Nothing that is sent is stored.
 */
import Type from 'typebox'
import { type Operation, operation, organizationInPath, ownOrganization } from '../../api/operations/operation.ts'
import {
  AllDiscarded,
  Maybe,
  Nullable,
  OneOf,
  Open,
  Results,
  Text,
  Timestamp,
  Uuid,
  Whole,
} from '../../api/operations/schema.ts'
import { words } from '../../lib/words.ts'
import { showAccount } from './account.ts'

const ofOrganization = {
  tag: 'Billing',
  scope: 'Read' as const,
  area: 'resources' as const,
  owner: organizationInPath,
  status: 200 as const,
}

const currentCost = operation({
  ...ofOrganization,
  id: 'getOrganizationCurrentCost',
  method: 'GET',
  path: '/organization/{organizationId}/currentCost',
  summary: 'Read the cost of an organization: always 0',
  answer: Type.Object({
    plan: OneOf(['FREE']),
    remaining_trial_day: Whole(0),
    renewal_at: Nullable(Timestamp()),
    cost: Type.Object({ total_in_cents: Whole(0), total: Whole(0), currency_code: Text(3) }),
  }),
  run: async () => ({
    plan: 'FREE',
    remaining_trial_day: 0,
    renewal_at: null,
    cost: { total_in_cents: 0, total: 0, currency_code: 'USD' },
  }),
})

const none = (id: string, word: 'creditCard' | 'invoice', summary: string): Operation =>
  operation({
    ...ofOrganization,
    id,
    method: 'GET',
    path: `/organization/{organizationId}/${word}`,
    summary,
    answer: Results(Open()),
    run: async () => ({ results: [] }),
  })

const billingFields = words('first_name last_name email address city zip state country_code company vat_number')

const eachBillingField = <T>(value: () => T): Record<string, T> =>
  Object.fromEntries(billingFields.map((name) => [name, value()]))

const billing = {
  ...ofOrganization,
  path: '/organization/{organizationId}/billingInfo' as const,
  answer: Type.Object(eachBillingField(() => Nullable(Text(2048)))),
}

const billingInfo: Operation[] = [
  operation({
    ...billing,
    id: 'getOrganizationBillingInfo',
    method: 'GET',
    summary: 'Read the billing address of an organization: always empty',
    run: async () => eachBillingField(() => null),
  }),
  operation({
    ...billing,
    id: 'editOrganizationBillingInfo',
    method: 'PUT',
    summary: 'Accept a billing address without storing it: nothing is billed',
    scope: 'Write',
    body: Type.Object(AllDiscarded(eachBillingField(() => Maybe(Nullable(Text(2048)))))),
    run: async () => eachBillingField(() => null),
  }),
]

const onboarding = operation({
  ...ofOrganization,
  id: 'getOrganizationOnboarding',
  method: 'GET',
  path: '/organization/{organizationId}/onboarding',
  tag: 'Organization Main Calls',
  summary: 'Read how far the introduction to an organization is: always completed, as there is none',
  answer: Type.Object({ use_cases: Nullable(Text()), status: OneOf(['COMPLETED']) }),
  run: async () => ({ use_cases: null, status: 'COMPLETED' }),
})

const uses = ['PERSONAL', 'SCHOOL', 'WORK']

const signUp = {
  path: '/admin/userSignUp' as const,
  tag: 'User Sign Up',
  scope: 'Read' as const,
  area: 'self' as const,
  owner: ownOrganization,
  status: 200 as const,
}

const signUps: Operation[] = [
  operation({
    ...signUp,
    id: 'getUserSignUp',
    method: 'GET',
    summary: "Read the caller's sign-up form as its account fills it in; `type_of_use` is always WORK",
    answer: Type.Object({
      id: Uuid(),
      created_at: Timestamp(),
      first_name: Text(),
      last_name: Text(),
      user_email: Text(320),
      type_of_use: OneOf(['WORK']),
      qovery_usage: Text(),
    }),
    async run({ db, principal }) {
      const { id, created_at, first_name, last_name, communication_email } = await showAccount(db, principal)
      const usual = { type_of_use: 'WORK', qovery_usage: '' }
      return { id, created_at, first_name, last_name, user_email: communication_email, ...usual }
    },
  }),
  operation({
    ...signUp,
    id: 'createUserSignUp',
    method: 'POST',
    summary: 'Accept a sign-up form without storing it: an account is what its provider says',
    body: Type.Object(
      AllDiscarded({
        first_name: Text(),
        last_name: Text(),
        user_email: Text(320),
        type_of_use: OneOf(uses),
        qovery_usage: Text(2048),
        company_name: Maybe(Nullable(Text())),
        company_size: Maybe(Nullable(Text(20))),
        user_role: Maybe(Nullable(Text())),
        qovery_usage_other: Maybe(Nullable(Text(2048))),
        user_questions: Maybe(Nullable(Text(2048))),
        current_step: Maybe(Nullable(Text())),
        infrastructure_hosting: Maybe(Nullable(Text())),
      }),
    ),
    run: async () => undefined,
  }),
]

export const billingOperations: Operation[] = [
  currentCost,
  none('listOrganizationCreditCards', 'creditCard', 'List the credit cards of an organization: always none'),
  none('listOrganizationInvoice', 'invoice', 'List the invoices of an organization: always none'),
  ...billingInfo,
  onboarding,
  ...signUps,
]
