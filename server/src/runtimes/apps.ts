/** Services that are apps of an Argo CD: their form for a runtime with the ability `apps`, and its reports. */
import type { Secret } from '../lib/secret.ts'

/** An app of the cluster's Argo CD. */
export interface AppSettings {
  /** https or http. */
  repository: string
  /** Folder of the repository, without a slash at either end; empty: the repository itself. */
  path: string
  /** The namespace of the Argo CD, as configured by the app's owner. */
  argoNamespace: string
}

/** The app that a runtime with the ability makes in place of instances; `readyTimeoutMs` is how long it may take. */
export interface AppToRun extends AppSettings {
  content: Secret<AppContent>
}

export interface AppContent {
  /** Id of a commit that the owner may read, verified by this server. */
  commit: string
  /** The login with which Argo CD reads the repository; null: none. */
  login: { username: string; password: string } | null
}

export interface Told {
  state: 'RUNNING' | 'STARTING' | 'WARNING' | 'ERROR'
  /** Why it is not RUNNING, in sentences. */
  message: string | null
}

export interface AppObject {
  kind: string
  name: string
  namespace: string
  /** JSON of the applied object, and of the present one; empty if it cannot be read. */
  target: string
  live: string
}

export interface AppObjects {
  /** Id of its present commit; null if the app does not say. */
  commit: string | null
  objects: AppObject[]
}
