/** The reason of an abort that hands the work over to another process: a running program is left running. */
export class LeaseHandedOff extends Error {
  constructor(message = 'handed over to another process') {
    super(message)
    this.name = 'Handover'
  }
}
