/**
 * Cases of features that several kinds of services share: advanced settings, custom domains, deployment restrictions.
 */
import type { Operation } from '../../src/api/operations/operation.ts'
import { isKind, ownKinds } from '../../src/kinds.ts'
import type { Case, Cases, Scene, Values } from './case.ts'

/** `/application/<id>`, of the service that the path names. */
const serviceIn = (values: Values): string => {
  const kind = ownKinds.find((each) => values[`${each}Id`] !== undefined)!
  return `/${kind}/${values[`${kind}Id`]}`
}

const maker = (path: string, body: (scene: Scene) => object) => async (values: Values, scene: Scene) =>
  (await scene.post(`${serviceIn(values)}/${path}`, body(scene))).id as string

const domain = ({ count }: { count: number }) => ({ domain: `www.shop-${count}.example`, generate_certificate: false })
/** For any domain of this family; it is refused before its key is checked. */
const isUpload = (path: string): boolean => path.endsWith('/certificate')

const restriction = () => ({ mode: 'MATCH', type: 'PATH', value: 'services/api/' })

const family = ({ method, path }: Operation): Case | undefined => {
  const [, kind, name] = /^\/(\w+)\/\{\w+\}\/(customDomain|deploymentRestriction|advancedSettings)\b/.exec(path) ?? []
  if (kind === undefined || !isKind(kind)) return undefined
  if (method === 'POST') return { body: name === 'customDomain' ? (_, scene) => domain(scene) : restriction }
  if (method !== 'PUT') return {}
  if (isUpload(path)) return { body: () => ({ certificate: 'none', private_key: 'none' }), refused: 400 }
  if (name === 'customDomain') return { body: () => ({ use_cdn: true }) }
  if (name === 'deploymentRestriction') return { body: () => ({ value: 'services/web/' }) }
  return {
    body: () =>
      kind === 'helm' ? { 'network.ingress.enable_cors': true } : { 'deployment.termination_grace_period_seconds': 20 },
  }
}

export const serviceFacetCases: Cases = {
  makers: {
    customDomainId: maker('customDomain', domain),
    deploymentRestrictionId: maker('deploymentRestriction', restriction),
  },
  cases: {},
  family,
}
