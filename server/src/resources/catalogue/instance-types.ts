/**
 * Instance types of cloud providers, from the providers' public data sheets: the families that Kubernetes nodes are
 * usually made of. A selection; not every region has every family, and a type that is missing here can still be named.
 */
export interface InstanceType {
  type: string
  family: string
  size: string
  category: string
  generation: number
  cpu: number
  ramInGb: number
  /** Gbit/s, as a number in text. */
  bandwidth: string
  /** Whether that is a peak or guaranteed. */
  guarantee: 'UP_TO' | 'GUARANTEED'
  architecture: 'AMD64' | 'ARM64'
  gpu?: Gpu
}

interface Gpu {
  count: number
  name: string
  manufacturer: string
  memory_in_mib: string
}

/** `size cpu bandwidth`; a bandwidth with a tilde is a peak. */
type Sizes = readonly string[]

const burstable: Sizes = ['medium 2 ~5', 'large 2 ~5', 'xlarge 4 ~5', '2xlarge 8 ~5']
const m5: Sizes = ['large 2 ~10', 'xlarge 4 ~10', '2xlarge 8 ~10', '4xlarge 16 ~10', '8xlarge 32 10', '16xlarge 64 20']
const c5: Sizes = ['large 2 ~10', 'xlarge 4 ~10', '2xlarge 8 ~10', '4xlarge 16 ~10', '9xlarge 36 12', '18xlarge 72 25']
const sixth: Sizes = [
  'large 2 ~12.5',
  'xlarge 4 ~12.5',
  '2xlarge 8 ~12.5',
  '4xlarge 16 ~12.5',
  '8xlarge 32 12.5',
  '16xlarge 64 25',
]
const sixthArm: Sizes = [
  'medium 1 ~10',
  'large 2 ~10',
  'xlarge 4 ~10',
  '2xlarge 8 ~10',
  '4xlarge 16 ~10',
  '8xlarge 32 12',
  '16xlarge 64 25',
]
const seventhArm: Sizes = [
  'medium 1 ~12.5',
  'large 2 ~12.5',
  'xlarge 4 ~12.5',
  '2xlarge 8 ~15',
  '4xlarge 16 ~15',
  '8xlarge 32 15',
  '16xlarge 64 30',
]

/** Family, memory per processor in GB, sizes. */
const awsFamilies: readonly [string, number, Sizes][] = [
  ['m5', 4, m5],
  ['m6i', 4, sixth],
  ['m6a', 4, sixth],
  ['m7i', 4, sixth],
  ['m6g', 4, sixthArm],
  ['m7g', 4, seventhArm],
  ['c5', 2, c5],
  ['c6i', 2, sixth],
  ['c6a', 2, sixth],
  ['c7i', 2, sixth],
  ['c6g', 2, sixthArm],
  ['c7g', 2, seventhArm],
  ['r5', 8, m5],
  ['r6i', 8, sixth],
  ['r7i', 8, sixth],
  ['r6g', 8, sixthArm],
  ['r7g', 8, seventhArm],
]

/** The memory of burstable sizes does not follow from their CPUs. */
const burstableMemory: Record<string, number> = { medium: 4, large: 8, xlarge: 16, '2xlarge': 32 }

const t4 = { name: 'T4', manufacturer: 'NVIDIA', memory_in_mib: '16384' }
const a10g = { name: 'A10G', manufacturer: 'NVIDIA', memory_in_mib: '24576' }

/** Family, sizes as `size cpu bandwidth memory GPUs`, GPU. */
const awsGpuFamilies: readonly [string, Sizes, Omit<Gpu, 'count'>][] = [
  ['g4dn', ['xlarge 4 ~25 16 1', '2xlarge 8 ~25 32 1', '4xlarge 16 ~25 64 1', '12xlarge 48 50 192 4'], t4],
  ['g5', ['xlarge 4 ~10 16 1', '2xlarge 8 ~10 32 1', '4xlarge 16 ~25 64 1', '12xlarge 48 40 192 4'], a10g],
]

const speedOf = (text: string): Pick<InstanceType, 'bandwidth' | 'guarantee'> => ({
  bandwidth: text.replace('~', ''),
  guarantee: text.startsWith('~') ? 'UP_TO' : 'GUARANTEED',
})

const awsTypeOf = (family: string, row: string, memoryPerCpu: number | null): InstanceType => {
  const [size, cpu, speed, memory] = row.split(' ') as [string, string, string, string | undefined]
  return {
    type: `${family}.${size}`,
    family,
    size,
    category: family[0]!,
    generation: Number(family[1]),
    cpu: Number(cpu),
    ramInGb: memoryPerCpu === null ? Number(memory ?? burstableMemory[size]) : Number(cpu) * memoryPerCpu,
    ...speedOf(speed),
    architecture: /^\w\dg/.test(family) ? 'ARM64' : 'AMD64',
  }
}

const aws: InstanceType[] = [
  ...['t3', 't3a', 't4g'].flatMap((family) => burstable.map((row) => awsTypeOf(family, row, null))),
  ...awsFamilies.flatMap(([family, memory, sizes]) => sizes.map((row) => awsTypeOf(family, row, memory))),
  ...awsGpuFamilies.flatMap(([family, sizes, gpu]) =>
    sizes.map((row) => ({ ...awsTypeOf(family, row, null), gpu: { count: Number(row.split(' ')[4]), ...gpu } })),
  ),
]

/** Series, memory per processor, `cpu bandwidth`. */
const gcpSeries: readonly [string, number, Sizes][] = [
  ['e2-standard', 4, ['2 4', '4 8', '8 16', '16 16', '32 16']],
  ['e2-highmem', 8, ['2 4', '4 8', '8 16', '16 16']],
  ['e2-highcpu', 1, ['2 4', '4 8', '8 16', '16 16', '32 16']],
  ['n2-standard', 4, ['2 10', '4 10', '8 16', '16 32', '32 32']],
  ['n2-highmem', 8, ['2 10', '4 10', '8 16', '16 32', '32 32']],
  ['n2d-standard', 4, ['2 10', '4 10', '8 16', '16 32', '32 32']],
]

const gcp: InstanceType[] = gcpSeries.flatMap(([series, memory, rows]) =>
  rows.map((row): InstanceType => {
    const [cpu, bandwidth] = row.split(' ') as [string, string]
    return {
      type: `${series}-${cpu}`,
      family: series.split('-')[0]!,
      size: cpu,
      category: series.split('-')[1]!,
      generation: Number(series[1]),
      cpu: Number(cpu),
      ramInGb: Number(cpu) * memory,
      bandwidth,
      guarantee: 'UP_TO',
      architecture: 'AMD64',
    }
  }),
)

/** `type cpu memory bandwidth` */
const scalewayRows: Sizes = [
  'DEV1-M 3 4 0.3',
  'DEV1-L 4 8 0.4',
  'DEV1-XL 4 12 0.5',
  'PLAY2-NANO 2 4 0.2',
  'PLAY2-MICRO 4 8 0.4',
  'PRO2-XXS 2 8 0.35',
  'PRO2-XS 4 16 0.7',
  'PRO2-S 8 32 1.5',
  'PRO2-M 16 64 3',
  'PRO2-L 32 128 6',
  'GP1-XS 4 16 0.5',
  'GP1-S 8 32 0.8',
  'GP1-M 16 64 1.5',
  'GP1-L 32 128 5',
  'GP1-XL 48 256 10',
]

const scaleway: InstanceType[] = scalewayRows.map((row) => {
  const [type, cpu, memory, bandwidth] = row.split(' ') as [string, string, string, string]
  const [family, size] = type.split('-') as [string, string]
  return {
    type,
    family,
    size,
    category: family.slice(0, -1),
    generation: Number(family.at(-1)),
    cpu: Number(cpu),
    ramInGb: Number(memory),
    bandwidth,
    guarantee: 'GUARANTEED',
    architecture: 'AMD64',
  }
})

/** Pattern of the name with # for the CPUs, memory per CPU, `cpu bandwidth`. */
const azureSeries: readonly [string, number, Sizes][] = [
  ['Standard_D#s_v5', 4, ['2 ~12.5', '4 ~12.5', '8 ~12.5', '16 ~12.5', '32 ~16']],
  ['Standard_D#as_v5', 4, ['2 ~12.5', '4 ~12.5', '8 ~12.5', '16 ~12.5', '32 ~16']],
  ['Standard_E#s_v5', 8, ['2 ~12.5', '4 ~12.5', '8 ~12.5', '16 ~12.5', '32 ~16']],
  ['Standard_F#s_v2', 2, ['2 ~5', '4 ~10', '8 ~12.5', '16 ~12.5', '32 ~16']],
  ['Standard_D#ps_v5', 4, ['2 ~12.5', '4 ~12.5', '8 ~12.5', '16 ~12.5', '32 ~16']],
]

const azure: InstanceType[] = azureSeries.flatMap(([form, memory, rows]) =>
  rows.map((row): InstanceType => {
    const [cpu, speed] = row.split(' ') as [string, string]
    const [, letter, more, version] = /^Standard_(\w)#(\w+)_v(\d)$/.exec(form)!
    return {
      type: form.replace('#', cpu),
      family: `${letter}${more}v${version}`,
      size: cpu,
      category: letter!,
      generation: Number(version),
      cpu: Number(cpu),
      ramInGb: Number(cpu) * memory,
      ...speedOf(speed),
      architecture: more!.includes('p') ? 'ARM64' : 'AMD64',
    }
  }),
)

export const instanceTypes: Record<'AWS' | 'GCP' | 'SCW' | 'AZURE', readonly InstanceType[]> = {
  AWS: aws,
  GCP: gcp,
  SCW: scaleway,
  AZURE: azure,
}
