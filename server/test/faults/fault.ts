/** One line of the fault table (design/trust.md, part 3) that a machine can check. */

export interface Fault {
  /** As in the table: `F9`. */
  id: string
  /** What must hold, in one short sentence. */
  title: string
  /** Default 120 s. */
  deadlineMs?: number
  /** Answers the measured figures in one short phrase; rejects with what did not hold. */
  run(): Promise<string>
}
