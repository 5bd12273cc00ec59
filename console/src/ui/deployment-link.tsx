/** From a notice to the deployment that it is about, if there is one. */
import { Link } from '@tanstack/react-router'

export const DeploymentLink = ({
  environmentId,
  executionId,
}: {
  environmentId: string
  executionId: string | undefined
}) =>
  executionId === undefined ? null : (
    <Link to="/e/$environmentId/deployments/$executionId" params={{ environmentId, executionId }}>
      See the deployment
    </Link>
  )
