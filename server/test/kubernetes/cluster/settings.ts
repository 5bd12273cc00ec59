/** What the programs of a node are started with. */
import { join } from 'node:path'

export interface NodePlace {
  /** Everything that the node keeps. */
  folder: string
  /** The machine's end of the node's network. */
  outside: string
  /** The node. */
  inside: string
}

export const dnsAddress = '10.96.0.10'
export const firstServiceAddress = '10.96.0.1'
export const sandboxImage = 'slipway.test/pause:1'
const services = '10.96.0.0/16'
const pods = '10.244.0.0/24'

export const containerdSettings = ({ folder }: NodePlace): string => `version = 2
root = ${JSON.stringify(join(folder, 'containerd'))}
state = ${JSON.stringify(join(folder, 'containerd-state'))}
[grpc]
address = ${JSON.stringify(join(folder, 'containerd.sock'))}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "${sandboxImage}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = ${JSON.stringify(join(folder, 'cni'))}
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = ${JSON.stringify(join(folder, 'registries'))}
`

/**
 * Each pod is a network of its own: what goes from one to another passes the rules of the services. Out of the node
 * they come as the node, so that this machine knows where to answer.
 */
export const podNetwork = ({ folder }: NodePlace): object => ({
  cniVersion: '1.0.0',
  name: 'pods',
  plugins: [
    {
      type: 'ptp',
      mtu: 1500,
      ipMasq: true,
      ipam: {
        type: 'host-local',
        dataDir: join(folder, 'pod-addresses'),
        ranges: [[{ subnet: pods }]],
        routes: [{ dst: '0.0.0.0/0' }],
      },
    },
    { type: 'portmap', capabilities: { portMappings: true } },
  ],
})

/** Kubelets on cgroup v1 warn that it is deprecated, and run. */
export const kubeletSettings = ({ folder, inside }: NodePlace): object => ({
  apiVersion: 'kubelet.config.k8s.io/v1beta1',
  kind: 'KubeletConfiguration',
  authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
  authorization: { mode: 'AlwaysAllow' },
  address: inside,
  containerRuntimeEndpoint: `unix://${join(folder, 'containerd.sock')}`,
  cgroupDriver: 'cgroupfs',
  failCgroupV1: false,
  failSwapOn: false,
  clusterDNS: [dnsAddress],
  clusterDomain: 'cluster.local',
  resolvConf: join(folder, 'resolv.conf'),
  oomScoreAdj: 0,
  imageGCHighThresholdPercent: 100,
  evictionHard: { 'memory.available': '1Mi', 'nodefs.available': '0%', 'imagefs.available': '0%' },
  // What a test waits for should not wait for the kubelet.
  syncFrequency: '10s',
  nodeStatusUpdateFrequency: '5s',
  maxPods: 110,
})

/** The limits of connections are the machine's: they are left alone. */
export const proxySettings = ({ folder, inside }: NodePlace): object => ({
  apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
  kind: 'KubeProxyConfiguration',
  clientConnection: { kubeconfig: join(folder, 'kubeconfig') },
  hostnameOverride: 'node',
  bindAddress: inside,
  mode: 'iptables',
  clusterCIDR: pods,
  iptables: { minSyncPeriod: '100ms', syncPeriod: '30s' },
  conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: '0s', tcpCloseWaitTimeout: '0s' },
  oomScoreAdj: 0,
})

export const dnsSettings = ({ folder }: NodePlace): string => `.:53 {
  errors
  ready
  kubernetes cluster.local in-addr.arpa {
    kubeconfig ${join(folder, 'kubeconfig')}
    pods insecure
    ttl 1
  }
}
`

/** The words that start each program, in this order; the later ones once the API server is ready. */
export const firstPrograms = (place: NodePlace, programs: string): string[][] => {
  const { folder, inside } = place
  const file = (name: string): string => join(folder, name)
  const node = join(programs, 'node')
  return [
    ['containerd', 'containerd', '--config', file('containerd.toml')],
    [
      ...['etcd', node, 'etcd', '--data-dir', file('etcd'), '--unsafe-no-fsync', '--log-level=error'],
      ...['--listen-client-urls=http://127.0.0.1:2379', '--advertise-client-urls=http://127.0.0.1:2379'],
      ...['--listen-peer-urls=http://127.0.0.1:2380'],
    ],
    [
      ...['kube-apiserver', node, 'kube-apiserver', '--etcd-servers=http://127.0.0.1:2379', '--allow-privileged'],
      ...[`--advertise-address=${inside}`, '--secure-port=6443', `--service-cluster-ip-range=${services}`],
      ...['--tls-cert-file', file('server.pem'), '--tls-private-key-file', file('server.key')],
      ...['--client-ca-file', file('ca.pem'), '--authorization-mode=Node,RBAC'],
      ...['--service-account-issuer=https://kubernetes.default.svc', '--profiling=false'],
      ...['--service-account-signing-key-file', file('accounts.key')],
      ...['--service-account-key-file', file('accounts.key'), '--kubelet-preferred-address-types=InternalIP'],
    ],
  ]
}

export const laterPrograms = ({ folder, inside }: NodePlace, programs: string): string[][] => {
  const file = (name: string): string => join(folder, name)
  const node = join(programs, 'node')
  const kubeconfig = ['--kubeconfig', file('kubeconfig')]
  return [
    [
      ...['kube-controller-manager', node, 'kube-controller-manager', ...kubeconfig, '--leader-elect=false'],
      ...['--secure-port=0', '--root-ca-file', file('ca.pem'), '--profiling=false'],
      ...['--service-account-private-key-file', file('accounts.key'), '--horizontal-pod-autoscaler-sync-period=5s'],
    ],
    ['kube-scheduler', node, 'kube-scheduler', ...kubeconfig, '--leader-elect=false', '--secure-port=0'],
    [
      ...['kubelet', node, 'kubelet', '--config', file('kubelet.json'), ...kubeconfig, '--hostname-override=node'],
      ...['--node-ip', inside, '--root-dir', file('kubelet')],
    ],
    ['kube-proxy', node, 'kube-proxy', '--config', file('proxy.json')],
    ['provider', node, 'provider', file('kubeconfig'), file('tmp/volumes'), inside],
    ['dns', join(programs, 'dns'), '-conf', file('Corefile')],
  ]
}
