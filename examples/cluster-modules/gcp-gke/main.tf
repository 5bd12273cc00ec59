# A regional GKE cluster in a network of its own.
terraform {
  required_version = ">= 1.6.0"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "6.28.0"
    }
    kubernetes = {
      source  = "hashicorp/kubernetes"
      version = "2.36.0"
    }
  }
}

locals {
  name = "slipway-${substr(var.id, 0, 8)}"
  # Labels of Google Cloud have neither capitals nor dots.
  labels = { for key, value in var.labels : replace(lower(key), "/[^a-z0-9_-]/", "-") => replace(lower(value), "/[^a-z0-9_-]/", "-") }
}

# The login and the project come from the environment.
provider "google" {
  region = var.region
}

data "google_client_config" "this" {}

resource "google_compute_network" "this" {
  name                    = local.name
  auto_create_subnetworks = false
}

resource "google_compute_subnetwork" "this" {
  name                     = local.name
  region                   = var.region
  network                  = google_compute_network.this.id
  ip_cidr_range            = "10.60.0.0/20"
  private_ip_google_access = true
  secondary_ip_range {
    range_name    = "pods"
    ip_cidr_range = "10.64.0.0/14"
  }
  secondary_ip_range {
    range_name    = "services"
    ip_cidr_range = "10.68.0.0/20"
  }
}

resource "google_service_account" "node" {
  account_id   = "${local.name}-node"
  display_name = "Machines of ${local.name}"
}

resource "google_project_iam_member" "node" {
  for_each = toset(["roles/logging.logWriter", "roles/monitoring.metricWriter", "roles/artifactregistry.reader"])
  project  = data.google_client_config.this.project
  role     = each.key
  member   = "serviceAccount:${google_service_account.node.email}"
}

resource "google_container_cluster" "this" {
  name                     = local.name
  location                 = var.region
  min_master_version       = var.kubernetes_version
  network                  = google_compute_network.this.id
  subnetwork               = google_compute_subnetwork.this.id
  remove_default_node_pool = true
  initial_node_count       = 1
  deletion_protection      = false
  resource_labels          = local.labels
  release_channel {
    channel = "UNSPECIFIED"
  }
  ip_allocation_policy {
    cluster_secondary_range_name  = "pods"
    services_secondary_range_name = "services"
  }
  gateway_api_config {
    channel = "CHANNEL_STANDARD"
  }
}

resource "google_container_node_pool" "this" {
  count    = var.stopped ? 0 : 1
  name     = "nodes"
  cluster  = google_container_cluster.this.id
  location = var.region
  version  = var.kubernetes_version
  autoscaling {
    total_min_node_count = var.nodes_min
    total_max_node_count = max(var.nodes_max, var.nodes_min, 1)
  }
  management {
    auto_repair  = true
    auto_upgrade = false
  }
  node_config {
    machine_type    = var.instance_type
    disk_size_gb    = var.disk_size
    service_account = google_service_account.node.email
    oauth_scopes    = ["https://www.googleapis.com/auth/cloud-platform"]
    labels          = local.labels
  }
  lifecycle {
    ignore_changes = [initial_node_count]
  }
}

provider "kubernetes" {
  host                   = "https://${google_container_cluster.this.endpoint}"
  cluster_ca_certificate = base64decode(google_container_cluster.this.master_auth[0].cluster_ca_certificate)
  token                  = data.google_client_config.this.access_token
}

output "host" {
  value = "https://${google_container_cluster.this.endpoint}"
}

output "ca" {
  value = google_container_cluster.this.master_auth[0].cluster_ca_certificate
}
