/**
 * A RUN in its stage: prepares its mounts, runs the step, and leaves nothing of the mounts in the image. Mounts are
 * made of volumes, through the engine's API: its BuildKit would share one cache among all organizations. The values of
 * secrets are in files of a volume that lives as long as the step; they are not part of the step's cache key.
 */
import { posix } from 'node:path'
import { DeploymentError } from '../../lib/errors.ts'
import { mountKey, type Origin, type PlannedStage } from '../preparation/build-plan.ts'
import { mountsOf, type RunInstruction } from '../preparation/dockerfile.ts'
import { unreadable } from '../preparation/dockerfile-lines.ts'
import { type BindMount, findSecret, type SecretMount, type StepMount } from '../preparation/run-mounts.ts'
import { buildFailure, buildPiece } from './engine-build.ts'
import { exportLine, type ImageDetail } from './image-config.ts'
import { createMountVolume, kindAt, type MountVolume, mountFolder, type OwnFile } from './mount-volume.ts'
import { bodyWithoutTriggers, type EngineMounts, runStep, runTool, StepFailed } from './run-step.ts'
import { type BuildScene, bareId } from './stage-pieces.ts'
import type { HeldCaches } from './step-caches.ts'

const preludePath = '/dev/slipway-prelude'
const minTmpfsBytes = 2 ** 20

interface StageStep {
  run: RunInstruction
  parent: ImageDetail
  words: string[]
  args: [name: string, value: string][]
  mounts: StepMount[]
  /** Id of the image with the files of its binds; null without any. */
  files: string | null
  /** Those that have a value. */
  secrets: GivenSecret[]
}

interface GivenSecret {
  secret: SecretMount
  value: string
}

const ofType = <T extends StepMount['type']>(mounts: readonly StepMount[], type: T) =>
  mounts.filter((mount): mount is Extract<StepMount, { type: T }> => mount.type === type)

/** The image with the files of the binds, from the context and from other images. */
const makeFiles = async (
  scene: BuildScene,
  { line }: RunInstruction,
  binds: readonly BindMount[],
  idOf: (bind: BindMount) => string | null,
): Promise<string | null> => {
  if (binds.length === 0) return null
  const { engine, made, log, store, organizationId, deadlineMs } = scene
  const copies = binds.map((bind) => {
    const id = idOf(bind)
    const from = id === null ? '' : `--from=${bareId(id)} `
    return `COPY ${from}${JSON.stringify([bind.source, `${mountFolder}/${bind.index}`])}`
  })
  const lines = ['FROM scratch', `ARG SLIPWAY_CACHE=${scene.cacheSecret}`, ...copies]
  const needsFiles = binds.some(({ from }) => from === null)
  const image = await scene.watch(async (watched) => {
    const piece = {
      ...(await scene.context(`${lines.join('\n')}\n`, needsFiles)),
      ...{ lines: lines.map((text) => ({ text, display: null, line })), headLines: 0, buildArgs: {}, deadlineMs },
    }
    return buildPiece(engine, made, piece, log, () => {}, watched)
  })
  await store.saveStep(scene, `slipway-mount ${organizationId} ${image}`, image)
  return image
}

/** The step with its mounts, and the files of its binds on the engine. */
export const prepareStep = async (
  scene: BuildScene,
  planned: PlannedStage,
  at: Pick<StageStep, 'run' | 'parent' | 'words' | 'args'>,
  expand: (text: string) => string,
  originId: (origin: Origin) => string | null,
): Promise<StageStep> => {
  const mounts = mountsOf(at.run, at.parent.Config?.WorkingDir || '/', expand)
  const files = await makeFiles(scene, at.run, ofType(mounts, 'bind'), ({ index, from }) => {
    if (from === null) return null
    const id = originId(planned.mounts.get(mountKey(at.run.step, index))!)
    if (id === null)
      throw new DeploymentError('build_failed', 'The build failed: RUN mounts from scratch, which is empty.')
    return id
  })
  return { ...at, mounts, files, secrets: giveSecrets(scene, mounts) }
}

/** The cache key of the result; never the value of a secret. */
export const stepKey = ({ run, words, args, mounts, files }: StageStep): unknown =>
  mounts.length === 0 && !run.isOffline && run.script === null
    ? { words, args }
    : { words, args, mounts, files, isOffline: run.isOffline, script: run.script }

/** A missing optional secret is reported in the log, also if the result is cached. */
const giveSecrets = ({ secrets, log }: BuildScene, mounts: readonly StepMount[]): GivenSecret[] =>
  ofType(mounts, 'secret').flatMap((secret) => {
    const value = findSecret(secrets, secret.id)
    if (value !== undefined) return [{ secret, value }]
    if (!secret.isRequired)
      log.write(`The secret ${secret.id} is not mounted: the service has no variable with this name.\n`)
    return []
  })

const refuseMissing = ({ run, mounts, secrets }: StageStep): void => {
  const given = new Set(secrets.map(({ secret }) => secret))
  const missing = ofType(mounts, 'secret').find((secret) => secret.isRequired && !given.has(secret))
  if (missing !== undefined)
    throw unreadable(run.line, `RUN requires the secret ${missing.id}, and the service has no variable with this name.`)
}

const fileName = (index: number): string => `own-${index}`

interface Placed {
  file: OwnFile
  target: string
}

const placeFiles = ({ run, secrets: given }: StageStep): Placed[] => {
  const placed: { target: string; file: Omit<OwnFile, 'name'> }[] = []
  for (const { secret, value } of given) {
    const { uid, gid, mode, target } = secret
    if (target !== null) placed.push({ target, file: { text: value, uid, gid, mode } })
  }
  const prelude = given.map(({ secret: { env }, value }) => (env === null ? '' : exportLine(env, value))).join('')
  if (prelude !== '') placed.push({ target: preludePath, file: { text: prelude, uid: 0, gid: 0, mode: 0o444 } })
  const { script } = run
  if (script !== null) placed.push({ target: script.path, file: { text: script.text, uid: 0, gid: 0, mode: 0o755 } })
  return placed.map(({ target, file }, index) => ({ target, file: { ...file, name: fileName(index) } }))
}

/** Mount propagation is left to the engine, which has a rule for its own folder. */
const bindOf = (Source: string, Target: string, ReadOnly: boolean) => ({ Type: 'bind', Source, Target, ReadOnly })

const engineMounts = (
  { mounts }: StageStep,
  placed: readonly Placed[],
  volume: MountVolume | null,
  held: HeldCaches,
): EngineMounts => {
  const pathOf = (entry: string): string => `${volume!.path}/${entry}`
  const tmpfs = ofType(mounts, 'tmpfs').map(({ target, sizeBytes }): [string, string] => {
    const size = sizeBytes === null ? '' : `,size=${Math.max(minTmpfsBytes, sizeBytes)}`
    return [target, `rw,exec,mode=1777${size}`]
  })
  return {
    Mounts: [
      ...ofType(mounts, 'bind').map(({ index, target, isReadOnly }) => bindOf(pathOf(`${index}`), target, isReadOnly)),
      ...placed.map(({ file, target }) => bindOf(pathOf(file.name), target, true)),
      ...held.caches.map(({ mount, volume: Source }) => ({
        ...{ Type: 'volume', Source, Target: mount.target, ReadOnly: mount.isReadOnly },
        VolumeOptions: { NoCopy: true },
      })),
    ],
    Tmpfs: Object.fromEntries(tmpfs),
  }
}

/** Mount points that the image lacks, with their folders, the deepest first: the engine creates them. */
const findMissing = async (
  { engine, made }: BuildScene,
  { parent }: StageStep,
  targets: readonly string[],
  signal: AbortSignal,
): Promise<string[]> => {
  // The engine makes /dev for each container.
  const wanted = targets.filter((target) => !target.startsWith('/dev/'))
  if (wanted.length === 0) return []
  const name = made.name('container')
  const body = bodyWithoutTriggers(parent)
  const missing = new Set<string>()
  try {
    await engine.call('POST', '/containers/create', { query: { name }, body })
    for (const target of wanted)
      for (let path = target; path !== '/' && !missing.has(path); path = posix.dirname(path)) {
        if ((await kindAt(engine, name, path, signal)) !== null) break
        missing.add(path)
      }
  } finally {
    await made.removeContainer(name)
  }
  return [...missing].sort((a, b) => b.length - a.length)
}

const cleanScript = `for path in "$@"; do
if [ -L "$path" ]; then :
elif [ -d "$path" ]; then "$0" rmdir "$path" 2>/dev/null
elif [ -f "$path" ] && [ ! -s "$path" ]; then "$0" rm -f "$path"
fi
done
exit 0`

const runMounted = async (
  scene: BuildScene,
  step: StageStep,
  held: HeldCaches,
  signal: AbortSignal,
): Promise<string> => {
  const { engine, made, log, limits, network } = scene
  const { parent, words, args, run, mounts, files } = step
  const placed = placeFiles(step)
  const entries = ofType(mounts, 'bind').map(({ index }) => `${index}`)
  const newCaches = held.caches.filter(({ isNew }) => isNew)
  const isNeeded = entries.length + placed.length + newCaches.length > 0
  const image = files ?? (isNeeded ? await scene.holderImage(signal) : '')
  const content = { image, entries, files: placed.map(({ file }) => file), newCaches }
  const volume = isNeeded ? await createMountVolume(engine, made, content, signal) : null
  try {
    const targets = mounts.flatMap(({ target }) => (target === null ? [] : [target]))
    const missing = await findMissing(scene, step, targets, signal)
    const ran = await runStep(
      engine,
      made,
      {
        ...{ parent, words, args, limits, networkMode: run.isOffline ? 'none' : await network.mode() },
        mounts: engineMounts(step, placed, volume, held),
        preludePath: placed.some(({ target }) => target === preludePath) ? preludePath : null,
      },
      log.write,
      signal,
    )
    if (missing.length === 0) return ran
    const tool = { parent: await scene.inspect(ran), script: cleanScript, words: missing, limits }
    return await runTool(engine, made, { ...tool, tools: await scene.tools() }, signal)
  } finally {
    await volume?.remove()
  }
}

export const runStageStep = async (scene: BuildScene, step: StageStep, signal: AbortSignal): Promise<string> => {
  const { engine, made, log, limits, network, caches } = scene
  const { parent, words, args, run, mounts } = step
  refuseMissing(step)
  try {
    if (mounts.length === 0 && run.script === null) {
      const networkMode = run.isOffline ? 'none' : await network.mode()
      return await runStep(engine, made, { parent, words, args, limits, networkMode }, log.write, signal)
    }
    const wanted = ofType(mounts, 'cache')
    const onWait = ({ id }: { id: string }): void => log.write(`Waiting for the cache ${id}: another step has it.\n`)
    const held = await caches.take(scene, wanted, onWait, signal)
    try {
      for (const { volume } of held.caches) scene.usedCaches.add(volume)
      return await runMounted(scene, step, held, signal)
    } finally {
      await held.release()
    }
  } catch (error) {
    if (error instanceof StepFailed) throw buildFailure(log, error.message, error)
    throw error
  }
}
