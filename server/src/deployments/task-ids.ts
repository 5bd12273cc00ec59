/** Names of executions: made of whose they are, so that whoever finds one knows. Pure. */

/** The same for every try, which follow one another: whoever asks again joins the one under way. */
export const taskIdOf = (deploymentId: string, serviceId: string): string => `${deploymentId}-${serviceId.slice(-12)}`

/** The deployment, or the run by the clock, that a task belongs to. */
export const ownerOfTask = (taskId: string): string => taskId.slice(0, 36)
