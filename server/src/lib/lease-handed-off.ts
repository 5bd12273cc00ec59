/** The reason of an abort that hands the work over to another process: what runs is left running. */
export class LeaseHandedOff extends Error {
  constructor(message = 'handed over to another process') {
    super(message)
    this.name = 'Handover'
  }
}
