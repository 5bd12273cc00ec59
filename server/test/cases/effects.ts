/**
 * Which test shows that a field acts (test/effects.test.ts walks all fields). A field that is only stored and
 * returned is `plain`: one round trip covers all of these.
 */

export interface Shown {
  /** As in docs/guides/fields.md. */
  resources: readonly string[]
  fields: readonly string[]
  /** For fields with a closed list, the values that the test shows; `*` if it iterates over those of the schema. */
  values: Readonly<Record<string, readonly string[]>>
  /** Below server/. */
  file: string
  test: string
}

const words = (text: string): string[] => text.split(/\s+/).filter((word) => word !== '')

/** Fields that are only stored and returned. */
export const plain: Readonly<Record<string, readonly string[]>> = {
  Application: words('/description /icon_uri /build_mode /ports/*/name /storage/*/type'),
  Container: words('/description /icon_uri /ports/*/name /storage/*/type'),
  Database: words('/description /icon_uri'),
  Helm: words('/description /icon_uri'),
  Job: words('/description /icon_uri'),
  Terraform: words('/description /icon_uri'),
  ArgoCdApp: words('/description /icon_uri'),
  Project: words('/description'),
  Cluster: words('/description'),
  'Container Registry': words('/description'),
  'Backup Storage': words('/description'),
  'Deployment Stage': words('/description'),
  'Helm Repository': words('/description'),
  Organization: words('/description /website_url /repository /logo_url /icon_url /admin_emails'),
  'Organization Api Token': words('/description'),
  'Organization Custom Role': words('/description'),
  'Organization Webhook': words('/description'),
  'Organization Git Webhook': words('/description'),
}

/**
 * Resources | fields | file below server/, without its ending | title of the test. A field with a closed list names the
 * values that the test shows, `/field=A,B`, or `*` for a test that iterates over those of the schema (`closedValues`).
 */
const table = `
Application, Container, Database, Helm, Job, Terraform, ArgoCdApp | /name | test/bounds | names are unique in their parent whatever their case, and keep the case they were given
Application, Container | /cpu /memory | src/runtimes/docker/containers | limits are set, and no container is privileged or reaches the host
Application, Container | /cpu_architecture | src/resources/kinds/application | what the local cluster cannot do is refused with the field and what would be needed
Job | /cpu_architecture | src/resources/kinds/application | what the local cluster cannot do is refused with the field and what would be needed
Application | /min_running_instances /arguments /entrypoint /ports/*/internal_port | src/resources/kinds/application | the workload of an application is what its configuration says
Container | /min_running_instances /arguments /entrypoint /ports/*/internal_port | src/resources/kinds/container | the workload of a container is what its configuration says
Application, Container | /healthchecks/readiness_probe/type/tcp/port /healthchecks/readiness_probe/type/http/path /healthchecks/readiness_probe/type/http/scheme /healthchecks/readiness_probe/type/http/port /healthchecks/readiness_probe/type/exec/command /healthchecks/readiness_probe/initial_delay_seconds /healthchecks/readiness_probe/period_seconds /healthchecks/readiness_probe/timeout_seconds /healthchecks/readiness_probe/success_threshold /healthchecks/readiness_probe/failure_threshold | src/runtimes/docker/containers | probes: their configuration decides, and the last finding is reported
Application, Container | /healthchecks/readiness_probe/type/tcp/port /healthchecks/readiness_probe/type/http/path /healthchecks/readiness_probe/type/http/scheme /healthchecks/readiness_probe/type/http/port /healthchecks/readiness_probe/type/exec/command /healthchecks/readiness_probe/type/grpc/service /healthchecks/readiness_probe/type/grpc/port /healthchecks/readiness_probe/timeout_seconds /healthchecks/liveness_probe/type/tcp/port /healthchecks/liveness_probe/type/http/path /healthchecks/liveness_probe/type/http/scheme /healthchecks/liveness_probe/type/http/port /healthchecks/liveness_probe/type/exec/command /healthchecks/liveness_probe/type/grpc/service /healthchecks/liveness_probe/type/grpc/port /healthchecks/liveness_probe/timeout_seconds /healthchecks/liveness_probe/success_threshold | src/resources/kinds/application | each way to probe, its words and its pace reach the instance, and what is left out has its default
Application, Container | /healthchecks/liveness_probe/type/tcp/port /healthchecks/liveness_probe/type/http/path /healthchecks/liveness_probe/type/http/scheme /healthchecks/liveness_probe/type/http/port /healthchecks/liveness_probe/type/exec/command /healthchecks/liveness_probe/initial_delay_seconds /healthchecks/liveness_probe/period_seconds /healthchecks/liveness_probe/timeout_seconds /healthchecks/liveness_probe/success_threshold /healthchecks/liveness_probe/failure_threshold | src/runtimes/docker/containers | an instance whose liveness probe fails is restarted, one that is alive is not
Application, Container | /ports/*/id /storage/*/id | src/resources/kinds/application | an edit keeps what it leaves out, and ports and storage keep their ids
Application, Container | /ports/*/external_port /ports/*/publicly_accessible /ports/*/protocol | test/ports.e2e | HTTP, TCP and UDP ports of one application: old connections drain while new ones and flows go to the new version
Application, Container | /ports/*/is_default | src/resources/kinds/application | exactly one public web port is the default; the others have their port in the host
Application, Container | /storage/*/size | src/deployments/run/volumes | a volume is limited to its size, which cannot be changed: a deploy says so and leaves what runs
Application, Container | /storage/*/mount_point | test/environment.e2e | one deploy brings up the whole shop; it can be stopped, restarted, cloned and deleted, and keeps its data
Application, Container | /deployment.termination_grace_period_seconds | test/service-facets.e2e | a program that does not end when it is asked to is ended after its grace period
Application, Container | ?tail | src/facets/deployable | the log is read oldest first, cut to its tail, and streamed as it comes
Database | ?tail | src/facets/deployable | the log is read oldest first, cut to its tail, and streamed as it comes
Application, Container, Database, Helm, Job, Terraform, ArgoCdApp | ?dry_run | src/facets/plan | every action can be planned, and a plan does nothing
Application, Container, Database, Helm, Job, Terraform, ArgoCdApp | ?pageSize ?page | src/environments/history | histories have pages: the newest first, none twice, an empty one after the last
Application, Container, Database, Job | /release_id | src/facets/releases | a release of another service is 404, one that never ran well or has lost its image 409 with the reason
Application, Container, Database, Helm, Job, Terraform | /environment_id | src/resources/project/clone | a service cloned into another environment keeps what it can see there, and takes no value along that it cannot
Application, Container, Helm | /domain | src/facets/domains/custom-domain | a domain of a running service serves at once, and ends serving at once, without a deployment
Application, Container, Helm | /generate_certificate | src/facets/domains/custom-domain | a domain gets a certificate only when one is asked for, and says how far it is
Application, Container, Helm | /certificate /private_key | src/facets/domains/uploaded | a certificate of a user is served for its domain, said in its status, and never answered with its key
Application, Container, Helm | /use_cdn | src/facets/domains/custom-domain | a check finds out from the addresses of a name whether it leads here, and returns none of them
Application | /git_repository/url /git_repository/branch /git_repository/root_path /dockerfile_path | test/docker.e2e | the polling client of the specification goes from nothing to a running application and back
Application | /git_repository/git_token_id | test/docker.e2e | a private repository is deployed with its git token, which is stored nowhere afterwards
Application | /docker_target_build_stage | src/resources/kinds/application | the workload of an application is what its configuration says
Application | /git_commit_id | src/environments/actions | selected services are deployed at the versions named, restarted, stopped, uninstalled and deleted, and no others
Application, Helm, Job, Terraform | ?startId ?gitCommitId | src/resources/repositories/git-browsing | the commits of an application are those of its branch, the newest first, with the page of each
Application, Job, Environment | /auto_preview | test/previews | a pull request that a host reports gets its own environment, which follows its pushes and is removed with it
Application, Job, Terraform | /build.timeout_max_sec /build.cpu_max_in_milli /build.ram_max_in_gib | src/facets/settings/advanced-settings | limits of a build reach the build, and nothing that is not set changes what a deployment is known by
Application, Job, Terraform | /build.skip_git_submodules | src/builds/mirrors/submodules | files of submodules are in place, nested ones too, whatever their depth and the form of their URL
Container | /image_name /tag /registry_id | src/deployments/images/images | a deploy of an image pulls it and builds nothing; a tag that the deploy names wins
Container | /image_tag | src/resources/kinds/container | a container is deployed at the tag named, and goes with its deletion
Application | ?message | test/source-archive | a directory becomes a commit with its files, modes and links, and is deployed
Application | /git_repository/url | test/git-push.e2e | a push shows its build and its outcome, and serves; a broken one exits with 1 and the reason, and the old version keeps running
Application | /auto_deploy | test/pushes | a push that a git host reports deploys the head of the repository, whatever the payload says
Application, Job, Terraform | /mode=MATCH,EXCLUDE /type=PATH /value | test/pushes | auto_deploy, skip words, the root path, restrictions and a stop decide which services a push deploys
Terraform | /auto_deploy_config/auto_deploy /auto_deploy_config/terraform_action=DEFAULT,PLAN,NOOP | test/pushes | a push deploys a job from a repository, and runs the terraform_action of a module
Organization Git Webhook | /git_token_id | test/pushes | a webhook for a git token concerns only repositories that are read with it, and prevents its deletion
Container, Job | /auto_deploy | test/pushes-told | a tag that moves deploys the containers and jobs that follow it, once, but not unchanged or stopped ones
Container | /auto_deploy | src/resources/kinds/container | a new tag is deployed to whatever follows the image, in all environments, and to nothing else
Database | /type /version | src/resources/kinds/database | a database runs from the public image of its version, with a volume of its own and a probe in the container
Database | /mode | src/resources/kinds/database | what the local cluster cannot do is refused with the field and what would be needed
Database | /instance_type /disk_type /action | src/resources/kinds/managed-database | a database is planned, made, connected to other services, changed, stopped, started and destroyed by its module
Database | /accessibility | test/ports.e2e | a public PostgreSQL is reached from outside with its credentials, keeps its data over a minor version, and closes
Database | /cpu /memory | src/resources/kinds/database | an omitted memory is what the image needs, a memory that is sent stays
Database | /storage | src/resources/service/volume-sizes | volumes of a clone are its own, and are limited to the sizes of their source
Job | /cpu /memory /source/image/image_name /source/image/tag /source/image/registry_id | src/resources/kinds/job | the engine gets the source of a job, its commands, when they run and their resources
Job | /source/docker/git_repository/url /source/docker/git_repository/branch /source/docker/git_repository/root_path /source/docker/git_repository/git_token_id /source/docker/dockerfile_path /source/docker/docker_target_build_stage | src/resources/kinds/job | the engine gets the source of a job, its commands, when they run and their resources
Job | /max_nb_restart | src/deployments/tasks/jobs | a job that fails is run again as often as it may be, then is an error with its last lines
Job | /max_duration_seconds | src/deployments/tasks/jobs | a job that takes too long is ended
Job | /auto_deploy /image_name /tag | src/resources/kinds/job | a new tag is deployed to the jobs that follow the image
Container | /image_name /tag | src/resources/kinds/container | a new tag is deployed to whatever follows the image, in all environments, and to nothing else
Job | /schedule/on_start/arguments /schedule/on_start/entrypoint /schedule/on_stop/arguments /schedule/on_stop/entrypoint /schedule/on_delete/arguments /schedule/on_delete/entrypoint | src/deployments/tasks/jobs | a stop runs what is for a stop, a delete what is for a delete, an uninstall too
Job | /schedule/cronjob/arguments /schedule/cronjob/entrypoint /schedule/cronjob/timezone /schedule/cronjob/scheduled_at | src/deployments/tasks/jobs | a deploy of a cron job runs nothing and registers it; what is due runs once, with its output kept
Job | ?forceEvent | src/deployments/tasks/jobs | a forced event runs just that; a job without it is refused
Job | /image_tag /git_commit_id | src/resources/kinds/job | a deploy names a version in the words of the source, and only one
Job | /cronjob.concurrency_policy | src/deployments/tasks/jobs | a cron job that asks for it begins its next run beside the last one, or in its place
Terraform | /terraform_files_source/git_repository/url /terraform_files_source/git_repository/branch /terraform_files_source/git_repository/root_path /terraform_files_source/git_repository/git_token_id /backend/kubernetes /engine /terraform_variables_source/tf_vars/*/key /terraform_variables_source/tf_vars/*/value | test/terraform.e2e | a module is planned, applied, changed and destroyed; an application uses its outputs
Terraform | /terraform_variables_source/tf_vars/*/secret | src/resources/terraform/terraform | a secret variable is sealed, and in no answer, configuration or audit row
Terraform | /terraform_variables_source/tf_var_file_paths /timeout_sec | src/resources/terraform/run | each action is one word for the program in the image; what a user wrote is an argument of its own
Terraform | /backend/user_provided | src/deployments/tasks/state | a state that is to be kept elsewhere is not left behind unseen: it is migrated first
Terraform | /provider_version/explicit_version /build.engine_image | src/resources/terraform/run | the tool comes from the image that is named, at the version of the service unless the image has one
Terraform | /job_resources/cpu_milli /job_resources/ram_mib | src/resources/terraform/terraform | a terraform service is created from what clients send, and answered with all that they need
Terraform | /action_extra_arguments | src/resources/terraform/run | extra arguments are handed on one a line, for the actions that have them
Terraform | /dockerfile_fragment/type /dockerfile_fragment/path /dockerfile_fragment/content | src/builds/tools | a fragment stands between the tool and the module, and takes nothing of what follows into its last line
Terraform | /id /git_commit_id /action | src/resources/terraform/terraform | a deploy applies, a plan does not, and the status says which of them it was
Terraform | ?resources_only | src/resources/terraform/terraform | a delete of the resources only leaves the configuration
Organization | /name | src/resources/organization/organization | an edit keeps what it leaves out
Organization | /type /token | src/resources/organization/organization | a git token is kept sealed and never answered; a service that uses it keeps it from being deleted
Organization | /workspace /git_api_url | src/resources/repositories/git-browsing | every provider lists the repositories that a token sees, page by page
Organization | /repository_origins | src/resources/repositories/git-browsing | a git token is sent to no other port or scheme of the host of its API, whichever user names it
Organization | /expired_at | test/promises | an expired git token is not used, and one that expires soon is reported
Organization | ?projectId ?environmentId ?clusterId | src/resources/project/overview | services are listed by project, environment and cluster
Organization Account Git Repository | ?gitTokenId ?name | src/resources/repositories/git-browsing | branches of a private repository are read from it with the token
Git repository | ?gitTokenId ?name | src/resources/repositories/git-browsing | branches of a private repository are read from it with the token
Git repository | /url /branch /root_path /git_token_id | src/resources/repositories/git-browsing | folders are listed as paths from the top, of private repositories with a token only
Organization Custom Role | /name | test/bounds | names are unique in their parent whatever their case, and keep the case they were given
Organization Custom Role | /cluster_permissions/*/cluster_id /cluster_permissions/*/permission /project_permissions/*/project_id /project_permissions/*/is_admin /project_permissions/*/permissions/*/environment_type /project_permissions/*/permissions/*/permission | src/resources/organization/member | an edit of a custom role names every cluster, every project and all four modes
Member | /user_id /role_id | src/resources/organization/member | a role that is given or changed applies to the next request, for members and for tokens
Member | /email /role | src/resources/organization/member | an invitation makes a member only of the account whose verified address it names
Organization Api Token | /name | src/resources/organization/api-token | no token can be named like a person, and each event names the one that it was
Organization Api Token | /scopes /scope /role_id | src/resources/organization/member | a token with a role and scopes has no more than either
Organization Api Token | /expires_at | src/resources/organization/organization | an API token is shown once, lasts 90 days by default, and works
Organization Event | ?fromTimestamp ?toTimestamp ?eventType ?targetType ?triggeredBy ?origin ?targetId ?subTargetType ?serviceProjectId ?serviceEnvironmentId | src/resources/organization/audit-event | the log is narrowed by time, kind, origin, maker and project
Organization Event | ?pageSize ?continueToken ?stepBackToken | src/resources/organization/audit-event | the audit log is read newest first, page by page, forth and back, though events come meanwhile
Organization Event | ?projectId ?environmentId ?targetLevelToFetch | src/resources/organization/audit-event | the words in the log can be listed, to choose a filter from
Cluster | /name /kubernetes | src/resources/cluster/cluster | what a request leaves out has its default, and the record has every field that clients read
Cluster | /region /cloud_provider | src/variables/built-in | a service sees the names, repositories and ports of the others of its environment, and where all of them run
Cluster | /cloud_provider_credentials/cloud_provider /cloud_provider_credentials/credentials/id /cloud_provider_credentials/credentials/name /cloud_provider_credentials/region | src/resources/cluster/engine | a cluster with credentials of an engine is deployed there, shows its version, and goes when it is deleted
Cluster | /ingress/annotations /ingress/issuer /ingress/has_certificate /ingress/gateway/name /ingress/gateway/namespace /ingress/gateway/listener | src/resources/cluster/kubernetes-services | a cluster names its way in: with a Gateway, hosts become its routes, gRPC and rewrites are possible, and links follow
Cluster | /ingress/class_name | src/runtimes/kubernetes/manifests/ingresses | hosts are published by the class that is named, with the certificates of an issuer or of the ingress itself
Cluster | /ingress/grpc_annotations /ingress/sticky_session_annotations /ingress/load_balancer_annotations | src/runtimes/kubernetes/manifests/ingresses | a controller gets the annotations that the cluster names: of all, of gRPC, of clients that stay, of balancers
Cluster | /ingress/gateway/session_persistence | src/runtimes/kubernetes/manifests/ingresses | through a Gateway each host is a route of its protocol, with its paths and rewrites
Cluster | /container_registry_id | src/resources/cluster/container-registry | without a registry nothing is built for a Kubernetes cluster, and only such a cluster names one
Cluster | /credentials/id /credentials/name | src/resources/cluster/cluster | credentials can be specified later, but not taken from a cloud cluster
Cluster | /secret_manager_accesses/*/id /secret_manager_accesses/*/name | src/resources/secret-manager/secrets | accesses to secret managers get ids, keep them and their secrets through edits, and never answer a secret
Cluster | /secret_manager_accesses/*/endpoint/mode=AWS_SECRET_MANAGER,AWS_PARAMETER_STORE,GCP_SECRET_MANAGER /secret_manager_accesses/*/endpoint/region /secret_manager_accesses/*/endpoint/project_id /secret_manager_accesses/*/authentication/mode=AWS_STATIC_CREDENTIALS,GCP_JSON_CREDENTIALS /secret_manager_accesses/*/authentication/access_key /secret_manager_accesses/*/authentication/secret_key /secret_manager_accesses/*/authentication/json_credentials | src/resources/secret-manager/deployed | a deployment gets the values of AWS and Google secrets, as variables and files, and every text of them is a secret
Variable | /secret_manager_access_id | src/resources/secret-manager/deployed | a value that cannot be read fails the deployment with the variable, the manager and the reason; the old version serves
Cluster | /dns_provider/domain | src/resources/cluster/kubernetes-services | hosts lead to the ingress of the cluster: below its own domain, which services follow, and to custom domains
Cluster | /min_running_nodes /max_running_nodes /disk_size /disk_iops /disk_throughput /instance_type /production /ssh_keys /features/*/id /features/*/value /metrics_parameters/enabled /metrics_parameters/configuration/kind=* /metrics_parameters/configuration/resource_profile=* /metrics_parameters/configuration/cloud_watch_export_config/enabled /metrics_parameters/configuration/high_availability /metrics_parameters/configuration/internal_network_monitoring/enabled /metrics_parameters/configuration/alerting/enabled /metrics_parameters/configuration/alerting/default_rule_labels /metrics_parameters/configuration/alerting/spec_config_secret /metrics_parameters/configuration/alerting/spec_external_url /metrics_parameters/configuration/alerting/config_name /infrastructure_charts_parameters/nginx_parameters/replica_count /infrastructure_charts_parameters/nginx_parameters/default_ssl_certificate /infrastructure_charts_parameters/nginx_parameters/publish_status_address /infrastructure_charts_parameters/nginx_parameters/annotation_metal_lb_load_balancer_ips /infrastructure_charts_parameters/nginx_parameters/annotation_external_dns_kubernetes_target /infrastructure_charts_parameters/cert_manager_parameters/kubernetes_namespace /infrastructure_charts_parameters/metal_lb_parameters/ip_address_pools /infrastructure_charts_parameters/eks_anywhere_parameters/git_repository/url /infrastructure_charts_parameters/eks_anywhere_parameters/git_repository/branch /infrastructure_charts_parameters/eks_anywhere_parameters/git_repository/commit_id /infrastructure_charts_parameters/eks_anywhere_parameters/git_repository/git_token_id /infrastructure_charts_parameters/eks_anywhere_parameters/git_repository/provider=* /infrastructure_charts_parameters/eks_anywhere_parameters/yaml_file_path /infrastructure_charts_parameters/eks_anywhere_parameters/cluster_backup/enabled /infrastructure_charts_parameters/eks_anywhere_parameters/cluster_backup/timeout_seconds /infrastructure_charts_parameters/eks_anywhere_parameters/cluster_backup/certs_secret_name /infrastructure_charts_parameters/eks_anywhere_parameters/cluster_backup/s3/bucket /infrastructure_charts_parameters/eks_anywhere_parameters/cluster_backup/s3/region /infrastructure_charts_parameters/eks_anywhere_parameters/cluster_backup/s3/role_arn /infrastructure_charts_parameters/eks_anywhere_parameters/cluster_backup/s3/key_prefix /keda/enabled /labels_groups/*/id | src/resources/cluster/managed/given | every field of a cluster that a module can read is given to it, with each value of its list
Cluster | /aws.cloudwatch.eks_logs_retention_days /aws.vpc.enable_s3_flow_logs /aws.vpc.flow_logs_retention_days /aws.vpc.enable_nat_gateway_secondary_eip /loki.log_retention_in_week /loki.deployment_mode=* /loki.single_binary.cpu_request_m /loki.single_binary.cpu_limit_m /loki.single_binary.memory_request_mib /loki.single_binary.memory_limit_mib /loki.write.cpu_request_m /loki.write.cpu_limit_m /loki.write.memory_request_mib /loki.write.memory_limit_mib /loki.read.cpu_request_m /loki.read.cpu_limit_m /loki.read.memory_request_mib /loki.read.memory_limit_mib /loki.backend.cpu_request_m /loki.backend.cpu_limit_m /loki.backend.memory_request_mib /loki.backend.memory_limit_mib /registry.image_retention_time /registry.mirroring_mode=* /cloud_provider.container_registry.tags /load_balancer.size /aws.eks.enable_alb_controller /aws.eks.enable_efs_addon /aws.eks.efs.throughput_mode=* /aws.eks.efs.performance_mode=* /aws.eks.efs.transition_to_ia=* /aws.iam.admin_group /aws.eks.ec2.metadata_imds=* /aws.eks.ec2.ami /pleco.resources_ttl /nginx.vcpu.request_in_milli_cpu /nginx.vcpu.limit_in_milli_cpu /nginx.memory.request_in_mib /nginx.memory.limit_in_mib /nginx.hpa.cpu_utilization_percentage_threshold /nginx.hpa.min_number_instances /nginx.hpa.max_number_instances /envoy.gateway_api.http_request_timeout_seconds /envoy.gateway_api.http_connection_idle_timeout_seconds /envoy.gateway_api.retry.num_retries /envoy.gateway_api.retry.retry_on /envoy.gateway_api.retry.http_status_codes /envoy.gateway_api.retry.per_try_timeout_seconds /qovery.static_ip_mode | src/resources/cluster/managed/given | every advanced setting of a cluster that a module can read is given to it, with each value of its list
Cloud Provider Credential | /access_key_id /secret_access_key /azure_subscription_id /azure_tenant_id /azure_application_id /azure_application_secret /gcp_credentials /scaleway_access_key /scaleway_secret_key /scaleway_project_id /scaleway_organization_id | src/resources/cluster/managed/given | the credentials of each provider become the variables that its tool reads, and of no other provider
Organization Labels Group | /labels/*/propagate_to_cloud_provider | src/resources/cluster/managed/given | every field of a cluster that a module can read is given to it, with each value of its list
Cluster | ?dry_run | src/resources/cluster/managed/managed | a cluster is planned, made, upgraded, stopped, started again and destroyed by the module of its provider
Cluster | ?deleteMode=* | src/resources/cluster/managed/managed | each way to delete a cluster takes it from its provider, or leaves it there
Cluster | /reason /ttl_in_days | src/resources/cluster/cluster | a lock keeps a cluster from being deployed and deleted until it is taken away or its days are over
ArgoCD | /argocd_url /argocd_token | src/resources/argocd/config | a check asks the Argo CD and reports errors of the token or of the connection
ArgoCD | /agent_cluster_id /argocd_cluster_url /cluster_id ?agentClusterId ?argocdClusterUrl | src/resources/argocd/config | what an Argo CD deploys to is linked to clusters of ours, until it is unlinked or the cluster goes
Cloud Provider | ?only_meets_resource_reqs ?with_gpu ?gpu | src/resources/catalogue/catalogue | GPUs are listed when they are asked for, and small machines can be left out
Container Registry | /name | src/resources/repositories/container-registry | a name is unique in the organization; a registry in use is counted, listed and cannot be deleted
Container Registry | /kind /url /config/username /config/password | src/resources/repositories/container-registry | the login for pulls is the one of the kind; what only a cloud provider hands out is named
Container Registry | ?imageName ?search | src/resources/repositories/registry-images | images are listed with their tags: one by name, or those whose names contain a text
Environment | /registry_id /image_name /tag | src/resources/repositories/registry-images | an image is checked with the login of its registry before a service is made of it
Helm Repository | /name | src/resources/helm/repository | names are unique; a repository in use is counted and cannot be deleted
Organization Labels Group | /name /labels/*/key /labels/*/value | src/resources/organization/metadata-group | keys and values that Kubernetes would refuse are refused by name
Organization Annotations Group | /name /annotations/*/key /annotations/*/value | src/resources/organization/metadata-group | a group of annotations keeps its scopes; any text is a value
Cloud Provider Credential | /name | src/resources/cluster/credentials | names are unique within a provider; credentials that a cluster uses show it and cannot be deleted
Cloud Provider Credential | /kubeconfig | src/resources/cluster/kubernetes | a Kubernetes cluster is registered by its kubeconfig, looked at, and taken away
Cloud Provider Credential | /engine_url /engine_ca_certificate /engine_client_certificate /engine_client_key /engine_ssh_key /engine_ssh_host_keys /engine_service_address | src/resources/cluster/engine | what the fields of an engine lack, or hold in vain, is said by name
Project | /name | src/resources/organization/organization | a project is made with 200, read, changed and deleted; its name is unique whatever the case
Project | /mode /cluster_id /wildcard | src/resources/project/deployment-rule | a new environment gets mode, cluster and schedule of the first rule that its name fits, unless it says otherwise
Project | /project_deployment_rule_ids_in_order | src/resources/project/deployment-rule | rules have an order of their own that is changed as a whole
Project, Environment | /auto_stop /timezone /start_time /stop_time /weekdays | src/deployments/request/auto-stop | what runs is stopped when the hours end, and the same is started, at its version, when they begin
Environment | /name /mode | src/resources/organization/organization | an environment's cluster never changes; its name and mode do
Environment | /cluster_id /cluster | src/resources/organization/organization | an environment takes cluster_id or cluster, and the default cluster without either
Organization | ?dry_run | src/resources/organization/clean-up | a dry run lists what a clean-up removes, with the reason and the bytes
Environment | ?dry_run | src/facets/plan | every action can be planned, and a plan does nothing
Environment | /execution_id | src/facets/releases | an environment goes back to how an execution left it, the services that differ only
Environment | /applications/*/application_id /applications/*/git_commit_id /databases /containers/*/id /containers/*/git_commit_id /containers/*/image_tag /jobs/*/id /jobs/*/git_commit_id /jobs/*/image_tag /helms/*/id /helms/*/git_commit_id /terraforms/*/id /terraforms/*/git_commit_id /terraforms/*/action | src/environments/actions | selected services are deployed at the versions named, restarted, stopped, uninstalled and deleted, and no others
Environment | /application_ids /container_ids /database_ids /job_ids /helm_ids /terraform_ids | src/resources/project/overview | actions on chosen services name services of the environment by their kind
Environment | ?pageSize ?page | src/environments/history | histories have pages: the newest first, none twice, an empty one after the last
Environment | ?deploymentRequestId | src/environments/status | the statuses of an environment are those of its applications, open requests counted
Environment | ?version | src/environments/live-log | a stream of one execution has its lines only
Environment | /apply_deployment_rule | src/resources/project/clone | a rule of the project is applied to a clone only when asked for
Environment | /project_id | src/resources/project/clone | a clone goes into another project or cluster of the organization, never out of it
Environment | ?exportSecrets | src/resources/terraform/export | an environment is exported with its services, variables and stages, and no secret among them
Websocket | ?project ?environment ?version | src/environments/live-status | a deployment is visible through events and websockets, in order, and the last frame equals a read
Websocket | ?service ?limit ?tail | src/facets/deployable | the websocket of the public API follows a service, with the token as a header or a subprotocol
Deployment Stage | /name | src/environments/deployment-stages | stages are moved before and after each other, renamed and deleted; the order stays whole
Deployment Stage | /is_skipped | src/environments/deployment-stages | what is skipped is left out of what is asked of the whole environment, until it is moved, and never of a delete
Variable | /key /value /description | src/facets/variables/variables | an application lists what it inherits, and gets aliases and overrides of it
Variable | /mount_path | test/promises | a variable becomes a file, and moves with its aliases
Variable | /overwrite /vars/*/name /vars/*/value /vars/*/scope /vars/*/is_secret | src/facets/variables/variables | an import sets variables at the scopes it names and leaves secrets that are set
Variable | /dotenv/text /dotenv/scope /dotenv/is_secret ?service_id ?service_type | src/facets/variables/sources | the text of a .env file is imported at the service or at the scope named, as variables or secrets
Variable | ?parent_id ?scope ?is_secret /is_secret /variable_scope /variable_parent_id /alias_scope /alias_parent_id /override_scope /override_parent_id | src/facets/variables/variables | the generic family reads and writes the same records
Variable | /secret_manager_access_id | src/facets/variables/sources | an external secret is kept as a reference; with a role as its authentication a deployment fails and says so
Organization Webhook | /kind /target_url /target_secret /enabled /events | src/resources/organization/webhook | many webhooks may be alike, and each takes the words of either vocabulary
Organization Webhook | /project_names_filter /environment_types_filter | src/webhooks/outbox | each receiver hears only what it asked for, in its own spelling
Account Info | /communication_email | src/api/auth/oidc | a JWT of the issuer has an account: it is created at its first use, and sees no organization
Terraform | ?force_terraform_action | src/resources/terraform/terraform | an uninstall that should skip the destroy says so, and runs nothing
Application, Job | /build.disable_buildkit_cache | src/facets/settings/advanced-settings | limits of a build reach the build, and nothing that is not set changes what a deployment is known by
Container Registry | /config/scaleway_access_key /config/scaleway_secret_key /config/json_credentials | src/resources/repositories/container-registry | the login for pulls is the one of the kind; what only a cloud provider hands out is named
Application, Container, Database, Job, Helm, Terraform, ArgoCdApp | ?toUpdate | test/promises | lists and histories are filtered as requested
Environment, Container, Database | ?startId | test/promises | lists and histories are filtered as requested
Organization | ?project_id ?environment_id ?cluster_id | test/promises | lists and histories are filtered as requested
Organization Api Token | ?name ?creatorName | test/promises | lists and histories are filtered as requested
Cluster | ?with_token_from_cli ?read_only | test/promises | what a cluster cannot do is refused: other rights in a kubeconfig, contradictory fields
Application | /git_repository/provider | src/resources/repositories/git-browsing | the pages of commits are those of the provider that is named, whatever the host is called
Job | /source/docker/git_repository/provider | src/resources/repositories/git-browsing | the pages of commits are those of the provider that is named, whatever the host is called
Terraform | /terraform_files_source/git_repository/provider | src/resources/repositories/git-browsing | the pages of commits are those of the provider that is named, whatever the host is called
Cluster | /is_demo | src/resources/cluster/cluster | what a request leaves out has its default, and the record has every field that clients read
Application, Container | /network.ingress.proxy_body_size_mb | src/router/http/policy | a body that is too large is refused before and while it is sent; 0 takes every size
Application, Container | /network.ingress.enable_cors /network.ingress.cors_allow_origin /network.ingress.cors_allow_methods /network.ingress.cors_allow_headers | src/router/http/policy | browsers of listed origins may read answers; preflights are answered without a login
Application, Container | /network.ingress.proxy_buffer_size_kb | src/router/http/policy | headers of a response may be as large as the settings say
Application, Container | /network.ingress.keepalive_time_seconds /network.ingress.keepalive_timeout_seconds | src/router/http/policy | a client’s connection ends when the settings say, and says so
Application, Container | /network.gateway_api.http_connection_idle_timeout_seconds | src/router/http/policy | connections to a target stay open as long as the settings say, and a change drops no request
Application, Container | /network.ingress.send_timeout_seconds /network.ingress.proxy_send_timeout_seconds /network.gateway_api.http_request_timeout_seconds | src/router/http/policy | the whole of a request, reading by the client and reading by the target have limits of their own
Application, Container | /network.ingress.proxy_connect_timeout_seconds | src/router/http/policy | connecting may take no longer than the settings say
Application, Container | /network.ingress.proxy_read_timeout_seconds | src/router/http/policy | a target that is silent for too long gets a 504 or is cut off, but one that keeps sending may take forever
Application, Container | /network.ingress.whitelist_source_range /network.ingress.denylist_source_range | src/router/http/policy | who may ask is decided by the address of the socket, and by what a trusted proxy says of it
Application, Container | /network.ingress.basic_auth_env_var | src/router/http/policy | without a right password nothing reaches the service, whatever kind of hash it has
Application, Container | /network.ingress.force_ssl_redirect | src/router/tls/tls | HTTPS is served for a host that has a certificate, over TLS 1.2 and 1.3, and HTTP leads to it
Application, Container | /network.ingress.enable_sticky_session | src/router/http/policy | a client stays with its instance as long as that answers, and gets another one then
Application, Container | /network.ingress.grpc_read_timeout_seconds | src/router/http/policy | gRPC: lists, passwords, prefixes, extra headers and silence act as for HTTP, in gRPC’s words
Application, Container | /network.ingress.extra_headers | src/router/http/policy | extra headers take the place of the service’s own
Application, Container | /network.gateway_api.retry.num_retries /network.gateway_api.retry.retry_on /network.gateway_api.retry.http_status_codes /network.gateway_api.retry.per_try_timeout_seconds | src/router/http/policy | a request is repeated as the settings say, and not when it has a body
Application, Container | /ports/*/public_path /ports/*/public_path_rewrite | src/router/http/policy | the longest prefix above a path wins; nothing gets past one by spelling the path differently
Job | ?tail | src/facets/runs/runs | a run by hand prints what is read in its own log, in that of the job, in the streams and in the history
Job | /cronjob.failed_jobs_history_limit /cronjob.success_jobs_history_limit | src/facets/runs/runs | the history keeps as many runs as the settings say, and goes with the job
Websocket | ?query | test/original-console | D13: the log of a service begins with the requested number of lines, and shows only matching ones
Websocket | ?service_type | src/facets/metrics | what a service uses is an empty list while nothing of it runs, and follows its instances
Cluster | ?endpoint ?query ?start ?end ?since ?limit ?direction | src/facets/metrics | past lines are read with filters, by time, in either direction, and with the labels that they have
Helm | /source/helm_repository/repository /source/helm_repository/chart_name /source/helm_repository/chart_version /chart_version /release_id ?tail /timeout_sec /values_override/set /values_override/set_string /values_override/set_json /values_override/file/raw/values/*/name /values_override/file/raw/values/*/content | src/resources/helm/deployed | a chart of a repository is planned, installed with its values, upgraded, rolled back, stopped, started and deleted
ArgoCdApp | /git_repository/url /git_repository/root_path /git_repository/git_token_id /git_commit_id /release_id ?startId | src/resources/argocd/deployed | an app is an Application at a commit that is waited for, changed, rolled back, stopped, started and deleted
ArgoCdApp | /git_repository/branch | test/kubernetes/argocd-apps | an app of a git repository is an Application that the cluster accepts, followed, changed, stopped and deleted with all its objects
ArgoCdApp | /git_repository/provider=BITBUCKET,GITHUB,GITLAB | src/resources/argocd/app | an Argo CD app is created, read, listed beside the other services, changed and deleted
ArgoCdApp | /namespace | src/resources/argocd/deployed | an app takes no other namespace, no object of others and no login of others
Helm | /allow_cluster_wide_resources | src/resources/helm/deployed | an upgrade that fails leaves what was installed, and a chart that asks for more than it may is refused by name
Helm | /source/git_repository/url /source/git_repository/branch /source/git_repository/root_path /source/git_repository/git_token_id /values_override/file/git/git_repository/url /values_override/file/git/git_repository/branch /values_override/file/git/git_repository/root_path /values_override/file/git/git_repository/git_token_id /values_override/file/git/paths /git_commit_id /values_override_git_commit_id | src/resources/helm/deployed | a chart and its values come from git, at the commits that are asked for
Environment | /helms/*/chart_version /helms/*/values_override_git_commit_id | src/resources/helm/deployed | a chart and its values come from git, at the commits that are asked for
Helm | /source/git_repository/provider=BITBUCKET,GITHUB,GITLAB /values_override/file/git/git_repository/provider=BITBUCKET,GITHUB,GITLAB | src/resources/repositories/git-browsing | the pages of commits are those of the provider that is named, whatever the host is called
Helm | ?of | src/resources/repositories/git-browsing | the commits of a helm service are those of its chart, or of its values
Backup Storage | /kind=FOLDER,S3 /folder /endpoint /region /bucket /prefix /access_key_id /path_style | src/resources/backups/storage | a storage is tried before it is made, and again when it is changed, and leaves no trace of that
Backup Storage | /name | src/resources/backups/storage | a storage that something uses is not deleted, and stays where it is
Backup Storage | /secret_access_key | src/resources/backups/storage | a secret key is not sent to another endpoint than it was given for, and the kind stays
Helm Repository | ?chartName /kind /url /config/username /config/password | src/resources/helm/charts | the charts of a repository are read with its login, all or one by name
Websocket | ?cluster | src/facets/metrics | a cluster says whether its engine answers, and what the services of the organization use there
Container Registry | /config/azure_application_id | src/resources/repositories/container-registry | the login for pulls is the one of the kind; what only a cloud provider hands out is named
Application | /deployment.lifecycle.post_start_exec_command /deployment.lifecycle.pre_stop_exec_command | src/facets/settings/advanced-settings | settings of containers reach the containers of the next deployment
Application, Container | /deployment.update_strategy.type | src/facets/settings/advanced-settings | settings of containers reach the containers of the next deployment
Application, Container | /security.read_only_root_filesystem | src/runtimes/docker/read-only-root | nothing but storage can be written to; mounted files are there beside what the image has, and go with the container
Job | /security.read_only_root_filesystem | src/runtimes/docker/read-only-root | a task with a read-only root is given its files, and leaves its outputs, also as another user
Environment | /git_repository/url /git_repository/branch /git_repository/root_path /git_repository/git_token_id /dockerfile_path | src/resources/repositories/git-browsing | Dockerfiles, values and variables are read from a repository as they are written there
Organization | /git_repository/url /git_repository/branch /git_repository/root_path /git_repository/git_token_id /mode/type /mode/paths | src/resources/repositories/git-browsing | Dockerfiles, values and variables are read from a repository as they are written there
Environment | /force_cancel | src/deployments/tasks/grace | a cancel asks a job and a tool to end within their grace; a forced one ends them at once, also after a plain one
Job, Terraform | /deployment.termination_grace_period_seconds | src/deployments/tasks/grace | a cancel asks a job and a tool to end within their grace; a forced one ends them at once, also after a plain one
Application, Container | /healthchecks/readiness_probe/initial_delay_seconds /healthchecks/readiness_probe/period_seconds | src/runtimes/docker/program-life | a chosen delay and period are kept while a version starts; with the usual ones it is asked at once
Application, Container | /healthchecks/readiness_probe/initial_delay_seconds /healthchecks/readiness_probe/period_seconds /healthchecks/readiness_probe/success_threshold /healthchecks/readiness_probe/failure_threshold | src/runtimes/docker/probes/pace | after the switch an instance is asked after the delay and at the period, and both thresholds count
Application, Container | /healthchecks/liveness_probe/initial_delay_seconds /healthchecks/liveness_probe/period_seconds /healthchecks/liveness_probe/failure_threshold | src/runtimes/docker/probes/pace | a liveness probe waits for its delay after each restart, and fails after as many looks as asked
Application | /deployment.lifecycle.post_start_exec_command | src/runtimes/docker/program-life | the command after the start is run again after each start by the engine
Terraform | /deployment.termination_grace_period_seconds | src/runtimes/docker/program-life | the tool of a terraform service is asked too, and what it saves before its end is waited for
Job | /deployment.termination_grace_period_seconds | src/runtimes/docker/program-life | a task is asked to end and has its grace, also when it took too long; without a grace it is killed at once
Application, Container | /network.ingress.grpc_send_timeout_seconds | src/router/http/policy | a gRPC stream whose target leaves it unread ends when the settings say, not sooner, and 0 lets it wait
Application, Container | /max_running_instances | test/running | a service without instances is STOPPED and gets no requests; a stopped service cannot be restarted
Application, Container | /min_running_instances | test/scaling | an idle service sleeps, says so, and the next requests wake it with one start
Application, Container | /min_running_instances /max_running_instances | test/scaling | instances are added and removed by CPU usage between minimum and maximum, none is restarted, and a deployment keeps their number
Cluster | /storageclass.fast_ssd | src/resources/cluster/kubernetes-settings | new volumes are of the class that the cluster names; one that is there keeps its own
Application, Container | /hpa.memory.average_utilization_percent /deployment.antiaffinity.pod=Preferred,Requirred /deployment.topology_spread.zone=Disabled,ScheduleAnyway,DoNotSchedule /deployment.update_strategy.rolling_update.max_surge_percent | src/resources/cluster/kubernetes-settings | where instances are, how they follow each other and scale by memory is what their settings say; on a Docker engine that is named as only recorded
Application, Container, Job, Terraform | /deployment.affinity.node.required | src/resources/cluster/kubernetes-settings | where instances are, how they follow each other and scale by memory is what their settings say; on a Docker engine that is named as only recorded
Application, Container | /hpa.cpu.average_utilization_percent | test/scaling | the target CPU usage is set by the owner, and acts with the next deployment
Application, Container, Database, Job | /annotations_groups/*/id /labels_groups/*/id | test/running | a changed group of labels or annotations makes its services out of date, and the next deployment applies it
Cluster | /cloud_provider=* /cloud_provider_credentials/cloud_provider=* | test/closed-values | each cloud provider needs its own credentials, and a cluster refuses those of another
Cluster | /kubernetes=* | test/closed-values | each kind of Kubernetes is stored; a managed one needs credentials
Environment, Project | /mode=* | test/closed-values | each mode is set by a rule or by name, and a role with access to one mode sees only its environments
Organization Custom Role | /project_permissions/*/permissions/*/environment_type=* | test/closed-values | each mode is set by a rule or by name, and a role with access to one mode sees only its environments
Variable | /variable_scope=* /alias_scope=* /override_scope=* /vars/*/scope=* /dotenv/scope=* ?service_type=* | test/closed-values | each scope accepts variables, aliases, overrides and imports of its place, and lists them
Variable | ?scope=* | test/closed-values | each scope accepts variables, aliases, overrides and imports of its place, and lists them
Organization Event | ?eventType=* ?targetType=* ?origin=* ?subTargetType=* | test/closed-values | each filter word of the audit log finds the matching events, and only those
Application, Container, Job | /cpu_architecture=* | test/closed-values | each architecture is that of the machine or refused, wherever one can be requested
Application, Container | /ports/*/protocol=* | test/closed-values | each protocol of a port is either routed by name or published as a port
Environment | /terraforms/*/action=* | test/closed-values | each action of a terraform service appears in the status
Terraform | /action=* | test/closed-values | each action of a terraform service appears in the status
Terraform | /dockerfile_fragment/type=* | test/closed-values | each source of a Dockerfile fragment requires its fields, and is stored with them
Organization Api Token | /scopes=* /scope=* | test/closed-values | each scope of a token is exactly what the token may do
Job | /cronjob.concurrency_policy=* | test/closed-values | each policy of a cron job is stored, and reaches its scheduler unless it is the default
Organization Webhook | /events=* /environment_types_filter=* | src/webhooks/outbox | each word for an event and each mode of a filter is heard, and nothing else by it
Organization Webhook | /kind=SLACK | src/webhooks/deliver | a Slack webhook gets a sentence and no signature
Organization Webhook | /kind=STANDARD | src/resources/organization/webhook | a delivery verifies with the secret of the creation, is logged, and can be sent again
Organization Custom Role | /project_permissions/*/permissions/*/permission=NO_ACCESS,VIEWER,DEPLOYER,MANAGER | src/api/auth/permissions | in a mode where it is \${level}, a custom role \${JSON.stringify(expected)}
Organization Custom Role | /cluster_permissions/*/permission=VIEWER,ENV_CREATOR,ADMIN | src/api/auth/permissions | a custom role looks at every cluster, and changes those it administers
Organization Event | ?targetLevelToFetch=* | test/closed-values | each level of targets lists those of its kind
Member | /role=OWNER,ADMIN,DEVELOPER | src/resources/organization/member | no member gives, or takes from, another one more rights than their own
Member | /role=VIEWER | src/resources/organization/member | a role that is given or changed applies to the next request, for members and for tokens
Cloud Provider | ?gpu=INCLUDE,EXCLUDE,ONLY | src/resources/catalogue/catalogue | GPUs are listed when they are asked for, and small machines can be left out
Organization | /type=BITBUCKET,GITHUB,GITLAB | src/resources/repositories/git-browsing | every provider lists the repositories that a token sees, page by page
Organization | /mode/type=AutoDiscover,SpecificPaths | src/resources/repositories/git-browsing | Dockerfiles, values and variables are read from a repository as they are written there
Helm | ?of=chart,values | src/resources/repositories/git-browsing | the commits of a helm service are those of its chart, or of its values
Container Registry | /kind=* | src/resources/repositories/container-registry | every field of every kind is kept and read back, but no secret is ever answered, listed or audited
Helm Repository | /kind=* | src/resources/helm/repository | every field is kept and read back, and no secret is ever answered
Project, Environment | /weekdays=MONDAY,TUESDAY,WEDNESDAY,THURSDAY,FRIDAY,SATURDAY,SUNDAY | src/lib/time/daily-hours | each day of the week is the day on which the hours begin
Application, Container | /healthchecks/readiness_probe/type/http/scheme=HTTP,HTTPS /healthchecks/liveness_probe/type/http/scheme=HTTP,HTTPS | src/resources/kinds/application | each way to probe, its words and its pace reach the instance, and what is left out has its default
Application | /git_repository/provider=BITBUCKET,GITHUB,GITLAB | src/resources/repositories/git-browsing | the pages of commits are those of the provider that is named, whatever the host is called
Job | /source/docker/git_repository/provider=BITBUCKET,GITHUB,GITLAB | src/resources/repositories/git-browsing | the pages of commits are those of the provider that is named, whatever the host is called
Terraform | /terraform_files_source/git_repository/provider=BITBUCKET,GITHUB,GITLAB | src/resources/repositories/git-browsing | the pages of commits are those of the provider that is named, whatever the host is called
Application, Container | /deployment.update_strategy.type=RollingUpdate,Recreate | src/facets/settings/advanced-settings | settings of containers reach the containers of the next deployment
Database | /type=POSTGRESQL,MYSQL,MONGODB,REDIS | src/resources/kinds/database | each type is described by its image, port, files, probe, login and environment
Database | /mode=CONTAINER | src/resources/kinds/database | what the local cluster cannot do is refused with the field and what would be needed
Database | /mode=MANAGED /disk_type=gp3 /action=PLAN | src/resources/kinds/managed-database | a database is planned, made, connected to other services, changed, stopped, started and destroyed by its module
Database | /disk_type=gp2 | src/resources/kinds/managed-database | a clone of an environment has a database of its own, and deleting it destroys nothing of the other
Database | /action=FORCE_UNLOCK | src/resources/kinds/managed-database | a run that is lost keeps the state locked until a person has looked
Database | /accessibility=PRIVATE,PUBLIC | test/ports.e2e | a public PostgreSQL is reached from outside with its credentials, keeps its data over a minor version, and closes
Job | ?forceEvent=START,STOP,DELETE | src/deployments/tasks/jobs | a forced event runs just that; a job without it is refused
Job | ?forceEvent=CRON | src/deployments/tasks/jobs | a stop ends the run under way and no other begins; a forced run leaves the clock alone
Terraform | /engine=TERRAFORM,OPEN_TOFU | test/terraform.e2e | a module is planned, applied, changed and destroyed; an application uses its outputs
Terraform | ?force_terraform_action=SKIP_DESTROY | src/resources/terraform/terraform | an uninstall that should skip the destroy says so, and runs nothing
Cluster | /action=adopt,remove | test/restore.e2e | a restored copy touches nothing that was made since, and does what the operator chooses
Cluster | /ids | src/resources/cluster/orphans | an orphan is listed to its own organization and to the operator, runs on, and goes when a person removes it
Cluster | /action=ignore /confirm | src/resources/cluster/orphans | on a cluster with a conflict everything is refused until the operator has chosen
Cluster | ?direction=* | src/facets/metrics | past lines are read with filters, by time, in either direction, and with the labels that they have
Backup | /backup_id | src/resources/backups/backup | a backup is restored only within its organization and into its type, one restore at a time
Backup | /storage_id | src/resources/backups/backup | a backup is kept in the storage that its request names, which is not deleted meanwhile
Backup | /confirm | src/resources/backups/backup | what a database has is replaced only with a confirmation
Backup | /name /message ?startId ?pageSize | src/resources/backups/backup | a backup has the name and message of its request, and is listed in pages, newest first
Backup | /enabled /scheduled_at /timezone /keep_last | src/resources/backups/backup | a schedule makes backups at its times, a missed one once, and keeps those that it says
Backup | /keep_daily /keep_weekly /keep_monthly | src/backups/retention | the last ones, and the newest of each day, week and month are kept
`

export const register: readonly Shown[] = table
  .trim()
  .split('\n')
  .map((row) => {
    const [resources, fields, file, test] = row.split(' | ') as [string, string, string, string]
    const named = words(fields).map((word) => word.split('=') as [string, string?])
    const closed = named.flatMap(([field, list]) => (list === undefined ? [] : [[field, list.split(',')] as const]))
    return {
      resources: resources.split(', '),
      fields: named.map(([field]) => field),
      values: Object.fromEntries(closed),
      file: `${file}.test.ts`,
      test,
    }
  })
