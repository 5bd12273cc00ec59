/** The file of a data directory into which a backup is being restored: nothing starts on it before that is over. */
export const unfinishedRestore = 'unfinished-restore'
