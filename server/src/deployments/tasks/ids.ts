/** Names of executions: derived from their owners, so that the owner is known from the name. Pure. */

/** The same for every attempt, one after another: a repeated call joins the one in progress. */
export const taskIdOf = (deploymentId: string, serviceId: string): string => `${deploymentId}-${serviceId.slice(-12)}`

/** The deployment, or the scheduled run, that a task belongs to. */
export const ownerOfTask = (taskId: string): string => taskId.slice(0, 36)

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** Whether this can be the name of an execution of ours: only such names are looked up. */
export const isTaskId = (taskId: string): boolean => uuid.test(ownerOfTask(taskId))
