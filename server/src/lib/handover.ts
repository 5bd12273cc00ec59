/** The reason of an abort after which handed over to another process with the same work: what runs is left running. */
export class Handover extends Error {
  constructor(message = 'handed over to another process') {
    super(message)
    this.name = 'Handover'
  }
}
