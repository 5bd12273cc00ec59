# "Makes" a database with what the tool has built in; in the small part of the language that server/test/terraform-tool knows.
variable "id" {
  type = string
}
variable "size" {
  type = string
}
variable "stopped" {
  type = bool
}
variable "host" {
  type = string
}
variable "word" {
  type      = string
  sensitive = true
}
resource "terraform_data" "slow" {
  input = "the network of ${var.id}"
  provisioner "local-exec" {
    command = "echo the provider is slow; sleep 5"
  }
}
resource "terraform_data" "database" {
  input = "${terraform_data.slow.output}: ${var.size}, stopped ${var.stopped}"
}
output "made" {
  value = terraform_data.database.output
}
output "host" {
  value = var.host
}
output "word" {
  value     = var.word
  sensitive = true
}
