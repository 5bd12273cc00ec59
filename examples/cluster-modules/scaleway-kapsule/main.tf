# A Kapsule cluster in a private network of its own.
terraform {
  required_version = ">= 1.6.0"
  required_providers {
    scaleway = {
      source  = "scaleway/scaleway"
      version = "2.51.0"
    }
    kubernetes = {
      source  = "hashicorp/kubernetes"
      version = "2.36.0"
    }
  }
}

locals {
  name = "slipway-${substr(var.id, 0, 8)}"
  tags = [for key, value in var.labels : "${key}=${value}"]
}

# The login and the project come from the environment.
provider "scaleway" {
  region = var.region
}

resource "scaleway_vpc_private_network" "this" {
  name   = local.name
  region = var.region
  tags   = local.tags
}

resource "scaleway_k8s_cluster" "this" {
  name                        = local.name
  region                      = var.region
  version                     = var.kubernetes_version
  cni                         = "cilium"
  private_network_id          = scaleway_vpc_private_network.this.id
  delete_additional_resources = true
  tags                        = local.tags
}

resource "scaleway_k8s_pool" "nodes" {
  count                  = var.stopped ? 0 : 1
  cluster_id             = scaleway_k8s_cluster.this.id
  region                 = var.region
  name                   = "nodes"
  node_type              = var.instance_type
  root_volume_size_in_gb = var.disk_size
  size                   = var.nodes_min
  min_size               = var.nodes_min
  max_size               = max(var.nodes_max, var.nodes_min, 1)
  autoscaling            = true
  autohealing            = true
  wait_for_pool_ready    = true
  tags                   = local.tags
  lifecycle {
    ignore_changes = [size]
  }
}

# What the cluster runs itself needs machines: the account is made when there were some.
resource "terraform_data" "ready" {
  input      = scaleway_k8s_cluster.this.id
  depends_on = [scaleway_k8s_pool.nodes]
}

provider "kubernetes" {
  host                   = scaleway_k8s_cluster.this.kubeconfig[0].host
  cluster_ca_certificate = base64decode(scaleway_k8s_cluster.this.kubeconfig[0].cluster_ca_certificate)
  token                  = scaleway_k8s_cluster.this.kubeconfig[0].token
}

output "host" {
  value = nonsensitive(scaleway_k8s_cluster.this.kubeconfig[0].host)
}

output "ca" {
  value = nonsensitive(scaleway_k8s_cluster.this.kubeconfig[0].cluster_ca_certificate)
}
