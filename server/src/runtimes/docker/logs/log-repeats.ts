/**
 * Drops lines that the engine sends twice: it starts a rotated file again at its first line if it is followed at the
 * moment of rotation. The lines of one stream of a container have increasing timestamps, so an older one is a repeat.
 */
import type { LogLine } from '../../runtime.ts'

interface Seen {
  last: string
  /** In the middle of a repeat, which ends with the last line told. */
  rewound: boolean
}

/** `now` (ISO) tells a repeat from a clock set back: then the last stamp lies ahead of it, and nothing is left out. */
export const createRepeatFilter = (now: () => string): ((line: LogLine) => boolean) => {
  const seen: Record<LogLine['stream'], Seen> = {
    stdout: { last: '', rewound: false },
    stderr: { last: '', rewound: false },
  }
  return ({ at, stream }) => {
    const before = seen[stream]
    if (at > before.last) before.rewound = false
    else if (at < before.last && !before.rewound) before.rewound = before.last <= now()
    if (before.rewound) return false
    before.last = at
    return true
  }
}
