# "Makes" a cluster with what the tool has built in; in the small part of the language that server/test/terraform-tool knows.
variable "host" {
  type = string
}
variable "ca" {
  type = string
}
variable "token" {
  type      = string
  sensitive = true
}
variable "kubernetes_version" {
  type = string
}
variable "stopped" {
  type = bool
}
variable "nodes" {
  type = number
}
resource "terraform_data" "login" {
  input = "let in"
  provisioner "local-exec" {
    command = "sh ./login.sh"
  }
}
resource "terraform_data" "cluster" {
  input = "${terraform_data.login.output}: ${var.kubernetes_version} with ${var.nodes} nodes, stopped ${var.stopped}"
}
output "cluster" {
  value = terraform_data.cluster.output
}
output "host" {
  value = var.host
}
output "ca" {
  value = var.ca
}
output "token" {
  value     = var.token
  sensitive = true
}
