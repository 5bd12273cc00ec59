/** Names of executions: made of whose they are, so that whoever finds one knows. Pure. */

/** The same for every try, which follow one another: whoever asks again joins the one under way. */
export const taskIdOf = (deploymentId: string, serviceId: string): string => `${deploymentId}-${serviceId.slice(-12)}`

/** The deployment, or the run by the clock, that a task belongs to. */
export const ownerOfTask = (taskId: string): string => taskId.slice(0, 36)

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** Whether this can be the name of an execution of ours: only such a one is asked for. */
export const isTaskId = (taskId: string): boolean => uuid.test(ownerOfTask(taskId))
