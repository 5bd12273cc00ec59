/** Errors of the work on backups: what may pass, and the sentence for users. Pure. */
import { DeploymentError } from '../lib/errors.ts'
import { DamagedBackup } from './format/sealed-stream.ts'
import { PlaceError } from './places/place.ts'

/** An engine or a storage that does not answer. */
export const mayPass = (error: unknown): boolean =>
  (error instanceof DeploymentError && error.next === 'wait') ||
  (error instanceof PlaceError && error.code === 'unreachable')

/** The stored file is missing, or differs from what was written. */
export const isLost = (error: unknown): boolean =>
  error instanceof DamagedBackup || (error instanceof PlaceError && ['missing', 'damaged'].includes(error.code))

const ownFault = 'The server failed in a way that it did not expect: its log has the details.'

/** A sentence for users; what is our own mistake is only in the log. */
export const sentenceOf = (error: unknown): string =>
  error instanceof DeploymentError || error instanceof PlaceError || error instanceof DamagedBackup
    ? error.message
    : ownFault
