# The account of Slipway: a token that lasts, with the rights that it needs and no others.
resource "kubernetes_namespace_v1" "slipway" {
  metadata {
    name = "slipway"
  }
}

resource "kubernetes_service_account_v1" "slipway" {
  metadata {
    name      = "slipway"
    namespace = kubernetes_namespace_v1.slipway.metadata[0].name
  }
}

resource "kubernetes_cluster_role_v1" "slipway" {
  metadata {
    name = "slipway"
  }
  dynamic "rule" {
    for_each = var.access_rules
    content {
      api_groups = rule.value.api_groups
      resources  = rule.value.resources
      verbs      = rule.value.verbs
    }
  }
}

resource "kubernetes_cluster_role_binding_v1" "slipway" {
  metadata {
    name = "slipway"
  }
  role_ref {
    api_group = "rbac.authorization.k8s.io"
    kind      = "ClusterRole"
    name      = kubernetes_cluster_role_v1.slipway.metadata[0].name
  }
  subject {
    kind      = "ServiceAccount"
    name      = kubernetes_service_account_v1.slipway.metadata[0].name
    namespace = kubernetes_namespace_v1.slipway.metadata[0].name
  }
}

resource "kubernetes_secret_v1" "slipway" {
  metadata {
    name      = "slipway-token"
    namespace = kubernetes_namespace_v1.slipway.metadata[0].name
    annotations = {
      "kubernetes.io/service-account.name" = kubernetes_service_account_v1.slipway.metadata[0].name
    }
  }
  type                           = "kubernetes.io/service-account-token"
  wait_for_service_account_token = true
}

output "token" {
  value     = kubernetes_secret_v1.slipway.data["token"]
  sensitive = true
}
