/** Features of clusters, by provider. Ids never change: clusters store them. */
export interface CatalogueFeature {
  id: string
  vendor: string
  /** The name that existing clients use; accepted instead of the id. */
  word: string
  title: string
  description: string
  /** The provider charges for it. */
  isPaid: boolean
  documentation: string | null
  /** Default value; null if the feature is off by default. */
  value: boolean | string | null
  isUpdatable: boolean
  accepted?: readonly (boolean | string)[]
}

const privateRanges = [
  '10.0.0.0/16',
  '10.64.0.0/16',
  '10.128.0.0/16',
  '172.16.0.0/16',
  '172.20.0.0/16',
  '192.168.0.0/16',
]
const yesNo = [true, false]

const staticIp = {
  word: 'STATIC_IP',
  title: 'Static outgoing addresses',
  description: 'Outgoing requests of services come from addresses that do not change.',
  isPaid: true,
  value: false,
  isUpdatable: false,
  accepted: yesNo,
}
const ownNetwork = {
  word: 'EXISTING_VPC',
  title: 'Your own network',
  description: 'The cluster is created inside an existing network.',
  isPaid: false,
  value: null,
  isUpdatable: false,
}
const natGateway = {
  word: 'NAT_GATEWAY',
  title: 'NAT gateway',
  description: 'Size and addresses of the gateway for outgoing requests.',
  isPaid: true,
  value: null,
  isUpdatable: true,
}

export const features: readonly CatalogueFeature[] = [
  {
    ...staticIp,
    id: 'cd622911-891a-4b12-8c35-02e0f5ea9b76',
    vendor: 'AWS',
    documentation: 'https://docs.aws.amazon.com/vpc/latest/userguide/vpc-nat-gateway.html',
  },
  {
    id: '8354773c-713d-4896-9732-e5e9105feca8',
    vendor: 'AWS',
    word: 'VPC_SUBNET',
    title: 'Address range',
    description: 'The private address range of the network that is created for the cluster.',
    isPaid: false,
    documentation: 'https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html',
    value: privateRanges[0]!,
    isUpdatable: false,
    accepted: privateRanges,
  },
  {
    ...ownNetwork,
    id: '8315cf61-3897-4c1a-b962-28694511deac',
    vendor: 'AWS',
    documentation: 'https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html',
  },
  {
    id: '1022b17f-7183-40ab-ab3c-b593d5b73490',
    vendor: 'AWS',
    word: 'KARPENTER',
    title: 'Nodes on demand',
    description: 'Nodes are chosen and created as services need them, instead of in groups of one instance type.',
    isPaid: false,
    documentation: 'https://karpenter.sh/docs/',
    value: null,
    isUpdatable: true,
  },
  {
    ...staticIp,
    id: '7d28569b-196f-4ab7-ad22-c5e7e62a3fc9',
    vendor: 'GCP',
    documentation: 'https://cloud.google.com/nat/docs/overview',
  },
  {
    ...ownNetwork,
    id: 'ff278ff8-7c2e-4e35-bfd7-22b2ac84dcf6',
    vendor: 'GCP',
    documentation: 'https://cloud.google.com/vpc/docs/vpc',
  },
  {
    ...natGateway,
    id: '1235c043-abdb-46cf-877e-fc0c8c82935d',
    vendor: 'GCP',
    documentation: 'https://cloud.google.com/nat/docs/overview',
  },
  {
    ...staticIp,
    id: 'b5ec4a25-2ccd-4d40-afcc-317f2ccdb195',
    vendor: 'SCW',
    documentation: 'https://www.scaleway.com/en/docs/public-gateways/',
  },
  {
    ...natGateway,
    id: 'be228f7b-a076-4c3f-b119-cb53e6df8775',
    vendor: 'SCW',
    documentation: 'https://www.scaleway.com/en/docs/public-gateways/',
  },
  {
    ...staticIp,
    id: '848d31f4-57b2-41de-9761-e57435151636',
    vendor: 'AZURE',
    documentation: 'https://learn.microsoft.com/azure/nat-gateway/nat-overview',
  },
]
