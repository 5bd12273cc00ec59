# AKS in a resource group of its own: one machine for AKS itself, and a pool that is away while the cluster is stopped.
terraform {
  required_version = ">= 1.6.0"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = "4.26.0"
    }
    kubernetes = {
      source  = "hashicorp/kubernetes"
      version = "2.36.0"
    }
  }
}

locals {
  name = "slipway-${substr(var.id, 0, 8)}"
}

# The login and the subscription come from the environment.
provider "azurerm" {
  features {}
}

resource "azurerm_resource_group" "this" {
  name     = local.name
  location = var.region
  tags     = var.labels
}

resource "azurerm_kubernetes_cluster" "this" {
  name                = local.name
  location            = azurerm_resource_group.this.location
  resource_group_name = azurerm_resource_group.this.name
  dns_prefix          = local.name
  kubernetes_version  = var.kubernetes_version
  sku_tier            = var.production ? "Standard" : "Free"
  tags                = var.labels
  identity {
    type = "SystemAssigned"
  }
  default_node_pool {
    name                 = "system"
    vm_size              = var.instance_type
    node_count           = 1
    os_disk_size_gb      = var.disk_size
    orchestrator_version = var.kubernetes_version
    upgrade_settings {
      max_surge = "10%"
    }
  }
  network_profile {
    network_plugin      = "azure"
    network_plugin_mode = "overlay"
    network_policy      = "cilium"
    network_data_plane  = "cilium"
  }
}

resource "azurerm_kubernetes_cluster_node_pool" "nodes" {
  count                 = var.stopped ? 0 : 1
  name                  = "nodes"
  kubernetes_cluster_id = azurerm_kubernetes_cluster.this.id
  vm_size               = var.instance_type
  os_disk_size_gb       = var.disk_size
  orchestrator_version  = var.kubernetes_version
  auto_scaling_enabled  = true
  min_count             = var.nodes_min
  max_count             = max(var.nodes_max, var.nodes_min, 1)
  tags                  = var.labels
}

provider "kubernetes" {
  host                   = azurerm_kubernetes_cluster.this.kube_config[0].host
  cluster_ca_certificate = base64decode(azurerm_kubernetes_cluster.this.kube_config[0].cluster_ca_certificate)
  client_certificate     = base64decode(azurerm_kubernetes_cluster.this.kube_config[0].client_certificate)
  client_key             = base64decode(azurerm_kubernetes_cluster.this.kube_config[0].client_key)
}

# Of the whole kubeconfig, which the provider marks as a secret, these two are none.
output "host" {
  value = nonsensitive(azurerm_kubernetes_cluster.this.kube_config[0].host)
}

output "ca" {
  value = nonsensitive(azurerm_kubernetes_cluster.this.kube_config[0].cluster_ca_certificate)
}
