/** The ten usual failures, as a cluster reports them, and the sentence for each. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { explainRefusal } from './objects.ts'
import type { ContainerStatus, Pod } from './pods.ts'
import { type ClusterEvent, judgeController, judgePod } from './verdict.ts'

const podWith = (status: NonNullable<Pod['status']>): Pod => ({
  metadata: { name: 'pod' },
  spec: { containers: [{ name: 'main', image: 'registry.test/app:1' }] },
  status: { phase: 'Pending', conditions: [{ type: 'PodScheduled', status: 'True' }], ...status },
})
const waiting = (reason: string, message = ''): Pod =>
  podWith({ containerStatuses: [{ name: 'main', state: { waiting: { reason, message } } }] })
const ended = (more: Partial<ContainerStatus>): Pod =>
  podWith({ phase: 'Running', containerStatuses: [{ name: 'main', restartCount: 2, ...more }] })
const unscheduled = (message: string): Pod =>
  podWith({ conditions: [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message }] })
const told = (reason: string, message: string, name = 'pod'): ClusterEvent => ({
  metadata: { name: 'event' },
  ...{ type: 'Warning', reason, message, involvedObject: { name } },
})
const running = podWith({ phase: 'Running', containerStatuses: [{ name: 'main', state: { running: {} } }] })
const crashing = { reason: 'CrashLoopBackOff', message: 'back-off 40s restarting failed container' }

const pinned = `registry.test:5000/team/app@sha256:${'a'.repeat(64)}`
const pullOf = (why: string): string =>
  `Back-off pulling image "${pinned}": ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image "${pinned}": failed to resolve reference "${pinned}": ${why}`

const cases: [string, Pod, ClusterEvent[], string, boolean, RegExp][] = [
  [
    'the image is missing',
    waiting('ErrImagePull', 'failed to resolve reference "registry.test/app:1": registry.test/app:1: not found'),
    [],
    'image_missing',
    true,
    /^The cluster cannot pull the image registry\.test\/app:1, .*: check its name and tag\.$/,
  ],
  [
    'the image is missing, by its digest',
    waiting('ImagePullBackOff', pullOf(`${pinned}: not found`)),
    [],
    'image_missing',
    true,
    /has no such image \(registry\.test:5000\/team\/app@sha256:a{64}: not found\): check its name and tag\.$/,
  ],
  [
    'the pull is denied, by its digest',
    waiting(
      'ErrImagePull',
      pullOf('pull access denied, repository does not exist or may require authorization: no basic auth'),
    ),
    [],
    'image_denied',
    true,
    /may not pull the image .* \(pull access denied, .*\): give the service a registry with a login that may read it\.$/,
  ],
  [
    'the pull is denied',
    waiting('ImagePullBackOff', 'pull access denied, repository does not exist or may require authorization'),
    [],
    'image_denied',
    true,
    /may not pull the image .*: give the service a registry with a login that may read it\.$/,
  ],
  [
    'the registry is away',
    waiting('ErrImagePull', 'dial tcp 10.0.0.1:443: i/o timeout'),
    [],
    'image_unreachable',
    false,
    /check that its machines reach the registry\.$/,
  ],
  [
    'the registry is away, of an image whose digest has the numbers of a refusal',
    waiting('ErrImagePull', `Head "https://registry.test/v2/app@sha256:${'401403'.repeat(10)}aaaa": i/o timeout`),
    [],
    'image_unreachable',
    false,
    /check that its machines reach the registry\.$/,
  ],
  [
    'it crashes',
    ended({ state: { waiting: crashing }, lastState: { terminated: { exitCode: 1, reason: 'Error' } } }),
    [],
    'crash_loop',
    true,
    /^The service exited 3 times instead of becoming ready \(exit code 1: the program reported an error\)\.$/,
  ],
  [
    'it has crashed, and may not again',
    ended({ restartCount: 1, state: { waiting: crashing }, lastState: { terminated: { exitCode: 3 } } }),
    [],
    'crash_loop',
    false,
    /^The service exited 2 times \(exit code 3: the program reported an error\), and the cluster starts it again\.$/,
  ],
  [
    'it needs too much memory',
    ended({ restartCount: 1, lastState: { terminated: { exitCode: 137, reason: 'OOMKilled' } } }),
    [],
    'out_of_memory',
    true,
    /^The service ran out of memory \(OOMKilled\): .* limit of 64 MB; raise `memory`\.$/,
  ],
  [
    'no machine has room',
    unscheduled('0/3 nodes are available: 3 Insufficient memory.'),
    [],
    'unschedulable',
    false,
    /\(0\/3 nodes are available: 3 Insufficient memory\): lower the memory or CPU of the service, or add machines\.$/,
  ],
  [
    'its volume is pending',
    unscheduled('0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.'),
    [],
    'volume_pending',
    false,
    /the cluster needs a default StorageClass, or one in its advanced settings, that can make one of this size\.$/,
  ],
  [
    'its probe fails',
    running,
    [told('Unhealthy', 'Readiness probe failed: HTTP probe failed with statuscode: 500')],
    'not_ready',
    false,
    /^Its probe fails \(Readiness probe failed: .* 500\): check the port and path/,
  ],
  [
    'its configuration is wrong',
    waiting('CreateContainerConfigError', 'secret "x" not found'),
    [],
    'configuration_error',
    true,
    /check the variables, files and command of the service\.$/,
  ],
  [
    'its machine does not reach the API server',
    waiting('CreateContainerConfigError', 'failed to sync secret cache: timed out waiting for the condition'),
    [],
    'cannot_start',
    false,
    /^A machine of the cluster cannot ask its API server for what the container needs \(failed to sync/,
  ],
  [
    'it runs as root',
    waiting('CreateContainerConfigError', 'container has runAsNonRoot and image will run as root'),
    [],
    'runs_as_root',
    true,
    /set USER to a number in its Dockerfile, or ask the operator .*\(SLIPWAY_KUBERNETES_RUN_AS\)\.$/,
  ],
  [
    'its command is not there',
    waiting('RunContainerError', 'runc create failed: exec: "nope": executable file not found in $PATH: unknown'),
    [],
    'cannot_start',
    true,
    /its command nope cannot be started: executable file not found in \$PATH\): check the command/,
  ],
  [
    'the command after its start fails',
    running,
    [told('FailedPostStartHook', 'PostStartHook failed: exited with 3')],
    'post_start_failed',
    true,
    /^The post-start command failed \(PostStartHook failed: exited with 3\): check that the image has it, and/,
  ],
]

test('each usual failure is a sentence that says what to do', () => {
  for (const [what, pod, events, code, isFinal, sentence] of cases) {
    const verdict = judgePod(pod, 64, events)
    assert.deepEqual([verdict?.code, verdict?.isFinal], [code, isFinal], what)
    assert.match(verdict!.message, sentence, what)
  }
})

test('a slow start is not a failure', () => {
  assert.equal(judgePod(waiting('ContainerCreating'), 64, []), null)
  assert.equal(judgePod(running, 64, [told('Unhealthy', 'of another', 'other')]), null)
  assert.equal(judgePod(ended({ restartCount: 1, state: { running: {} } }), 64, []), null)
  assert.equal(judgePod(podWith({ conditions: [] }), 64, []), null)
})

test('a quota, and a rule that rejects the pods, are reported for their controller', () => {
  const quota = 'pods "s-svc-1" is forbidden: exceeded quota: small, requested: cpu=1, used: cpu=1, limited: cpu=1'
  const hook = 'admission webhook "policy.test" denied the request: no such image allowed'
  const failure = (message: string) => [{ type: 'ReplicaFailure', status: 'True', message }]
  const [one, two] = [
    judgeController(failure(quota), [], 's-svc'),
    judgeController([], [told('FailedCreate', hook, 's-svc-7f')], 's-svc'),
  ]
  assert.deepEqual(
    [one?.code, one?.isFinal, two?.code, two?.isFinal],
    ['quota_exceeded', true, 'admission_denied', true],
  )
  assert.match(
    one!.message,
    /exceeded quota: small.*: raise the quota, or lower the memory, CPU or number of instances\.$/,
  )
  assert.match(two!.message, /no such image allowed\): change the service, or ask the cluster’s administrator\.$/)
  assert.equal(judgeController([], [told('FailedCreate', hook, 'another')], 's-svc'), null)
  assert.equal(explainRefusal('something else', 'it'), null)
})
