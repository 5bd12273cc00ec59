/** Services that are apps of an Argo CD, as a runtime with the ability `apps` is given them and tells of them. */
import type { Secret } from '../lib/secret.ts'

/** An app of the cluster's Argo CD. */
export interface AppSettings {
  /** https or http. */
  repository: string
  /** Folder of the repository, without a slash at either end; empty: the repository itself. */
  path: string
  /** Where its owner takes the Argo CD to be. */
  argoNamespace: string
}

/** What a runtime with the ability makes in place of instances; `readyTimeoutMs` is how long it may take. */
export interface AppToRun extends AppSettings {
  content: Secret<AppContent>
}

export interface AppContent {
  /** Id of a commit that the owner may read, as this server has found out itself. */
  commit: string
  /** By which Argo CD reads the repository; null: by nothing. */
  login: { username: string; password: string } | null
}

export interface Told {
  state: 'RUNNING' | 'STARTING' | 'WARNING' | 'ERROR'
  /** Why it is not RUNNING, in sentences. */
  message: string | null
}

/** One object that an app has made. */
export interface AppObject {
  kind: string
  name: string
  namespace: string
  /** JSON of what was applied, and of what there is; empty where that cannot be read. */
  target: string
  live: string
}

export interface AppObjects {
  /** Id of the commit that it is at; null if the app does not say. */
  commit: string | null
  objects: AppObject[]
}
