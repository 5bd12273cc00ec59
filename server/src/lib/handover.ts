/** The reason of an abort after which somebody else goes on with the same work: what runs is left running. */
export class Handover extends Error {
  constructor(message = 'somebody else goes on') {
    super(message)
    this.name = 'Handover'
  }
}
