/** Every case of the coverage test. */
import { applicationCases } from './application.ts'
import type { Cases } from './case.ts'
import { coreCases } from './core.ts'
import { variableCases } from './variables.ts'
import { webhookCases } from './webhook.ts'

export const allCases: readonly Cases[] = [coreCases, applicationCases, variableCases, webhookCases]
