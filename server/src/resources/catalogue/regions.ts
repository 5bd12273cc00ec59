/**
 * Regions of cloud providers: those in which their managed Kubernetes has been available for years. A selection, from
 * the providers' public lists; a region that is missing here can still be named by a cluster.
 */
interface Region {
  name: string
  country_code: string
  country: string
  city: string
  arm_supported: boolean
  zones: string[]
}

type Row = readonly [name: string, code: string, country: string, city: string]

const aws: readonly Row[] = [
  ['us-east-1', 'US', 'United States', 'N. Virginia'],
  ['us-east-2', 'US', 'United States', 'Ohio'],
  ['us-west-1', 'US', 'United States', 'N. California'],
  ['us-west-2', 'US', 'United States', 'Oregon'],
  ['ca-central-1', 'CA', 'Canada', 'Montreal'],
  ['sa-east-1', 'BR', 'Brazil', 'São Paulo'],
  ['eu-west-1', 'IE', 'Ireland', 'Dublin'],
  ['eu-west-2', 'GB', 'United Kingdom', 'London'],
  ['eu-west-3', 'FR', 'France', 'Paris'],
  ['eu-central-1', 'DE', 'Germany', 'Frankfurt'],
  ['eu-central-2', 'CH', 'Switzerland', 'Zurich'],
  ['eu-north-1', 'SE', 'Sweden', 'Stockholm'],
  ['eu-south-1', 'IT', 'Italy', 'Milan'],
  ['eu-south-2', 'ES', 'Spain', 'Aragon'],
  ['af-south-1', 'ZA', 'South Africa', 'Cape Town'],
  ['me-south-1', 'BH', 'Bahrain', 'Manama'],
  ['me-central-1', 'AE', 'United Arab Emirates', 'Dubai'],
  ['ap-south-1', 'IN', 'India', 'Mumbai'],
  ['ap-southeast-1', 'SG', 'Singapore', 'Singapore'],
  ['ap-southeast-2', 'AU', 'Australia', 'Sydney'],
  ['ap-southeast-3', 'ID', 'Indonesia', 'Jakarta'],
  ['ap-northeast-1', 'JP', 'Japan', 'Tokyo'],
  ['ap-northeast-2', 'KR', 'South Korea', 'Seoul'],
  ['ap-northeast-3', 'JP', 'Japan', 'Osaka'],
  ['ap-east-1', 'HK', 'Hong Kong', 'Hong Kong'],
]

/** Zones whose letters are not the first three. */
const awsZones: Record<string, string> = {
  'us-west-1': 'ac',
  'us-east-1': 'abcdef',
  'us-west-2': 'abcd',
  'ca-central-1': 'abd',
  'ap-northeast-1': 'acd',
}

const gcp: readonly Row[] = [
  ['us-central1', 'US', 'United States', 'Council Bluffs'],
  ['us-east1', 'US', 'United States', 'Moncks Corner'],
  ['us-east4', 'US', 'United States', 'Ashburn'],
  ['us-west1', 'US', 'United States', 'The Dalles'],
  ['us-west2', 'US', 'United States', 'Los Angeles'],
  ['northamerica-northeast1', 'CA', 'Canada', 'Montreal'],
  ['southamerica-east1', 'BR', 'Brazil', 'São Paulo'],
  ['europe-west1', 'BE', 'Belgium', 'St. Ghislain'],
  ['europe-west2', 'GB', 'United Kingdom', 'London'],
  ['europe-west3', 'DE', 'Germany', 'Frankfurt'],
  ['europe-west4', 'NL', 'Netherlands', 'Eemshaven'],
  ['europe-west6', 'CH', 'Switzerland', 'Zurich'],
  ['europe-west8', 'IT', 'Italy', 'Milan'],
  ['europe-west9', 'FR', 'France', 'Paris'],
  ['europe-southwest1', 'ES', 'Spain', 'Madrid'],
  ['europe-north1', 'FI', 'Finland', 'Hamina'],
  ['europe-central2', 'PL', 'Poland', 'Warsaw'],
  ['asia-south1', 'IN', 'India', 'Mumbai'],
  ['asia-southeast1', 'SG', 'Singapore', 'Jurong West'],
  ['asia-east1', 'TW', 'Taiwan', 'Changhua County'],
  ['asia-northeast1', 'JP', 'Japan', 'Tokyo'],
  ['asia-northeast3', 'KR', 'South Korea', 'Seoul'],
  ['australia-southeast1', 'AU', 'Australia', 'Sydney'],
]

const gcpZones: Record<string, string> = {
  'us-central1': 'abcf',
  'us-east1': 'bcd',
  'europe-west1': 'bcd',
}

const scaleway: readonly Row[] = [
  ['fr-par', 'FR', 'France', 'Paris'],
  ['nl-ams', 'NL', 'Netherlands', 'Amsterdam'],
  ['pl-waw', 'PL', 'Poland', 'Warsaw'],
]

const azure: readonly Row[] = [
  ['eastus', 'US', 'United States', 'Virginia'],
  ['eastus2', 'US', 'United States', 'Virginia'],
  ['centralus', 'US', 'United States', 'Iowa'],
  ['southcentralus', 'US', 'United States', 'Texas'],
  ['westus2', 'US', 'United States', 'Washington'],
  ['westus3', 'US', 'United States', 'Phoenix'],
  ['canadacentral', 'CA', 'Canada', 'Toronto'],
  ['brazilsouth', 'BR', 'Brazil', 'São Paulo'],
  ['northeurope', 'IE', 'Ireland', 'Dublin'],
  ['westeurope', 'NL', 'Netherlands', 'Amsterdam'],
  ['uksouth', 'GB', 'United Kingdom', 'London'],
  ['francecentral', 'FR', 'France', 'Paris'],
  ['germanywestcentral', 'DE', 'Germany', 'Frankfurt'],
  ['switzerlandnorth', 'CH', 'Switzerland', 'Zurich'],
  ['swedencentral', 'SE', 'Sweden', 'Gävle'],
  ['norwayeast', 'NO', 'Norway', 'Oslo'],
  ['polandcentral', 'PL', 'Poland', 'Warsaw'],
  ['italynorth', 'IT', 'Italy', 'Milan'],
  ['southafricanorth', 'ZA', 'South Africa', 'Johannesburg'],
  ['uaenorth', 'AE', 'United Arab Emirates', 'Dubai'],
  ['centralindia', 'IN', 'India', 'Pune'],
  ['southeastasia', 'SG', 'Singapore', 'Singapore'],
  ['japaneast', 'JP', 'Japan', 'Tokyo'],
  ['koreacentral', 'KR', 'South Korea', 'Seoul'],
  ['australiaeast', 'AU', 'Australia', 'Sydney'],
]

const regionsOf = (rows: readonly Row[], hasArm: boolean, zonesOf: (name: string) => string[]): Region[] =>
  rows.map(([name, country_code, country, city]) => ({
    name,
    country_code,
    country,
    city,
    arm_supported: hasArm,
    zones: zonesOf(name),
  }))

const lettered = (name: string, joint: string, letters = 'abc'): string[] =>
  [...letters].map((letter) => `${name}${joint}${letter}`)
const numbered = (name: string, joint: string): string[] => [1, 2, 3].map((zone) => `${name}${joint}${zone}`)

export const regions = {
  AWS: regionsOf(aws, true, (name) => lettered(name, '', awsZones[name])),
  GCP: regionsOf(gcp, false, (name) => lettered(name, '-', gcpZones[name])),
  SCW: regionsOf(scaleway, false, (name) => numbered(name, '-')),
  AZURE: regionsOf(azure, true, (name) => numbered(name, '-')),
} as const
