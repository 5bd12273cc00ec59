variable "id" {
  description = "The id of the cluster in Slipway, a UUID."
  type        = string
}

variable "region" {
  type = string
}

variable "kubernetes_version" {
  type = string
}

variable "stopped" {
  description = "A stopped cluster has no machines."
  type        = bool
  default     = false
}

variable "instance_type" {
  type    = string
  default = "e2-standard-2"
}

variable "disk_size" {
  description = "GB of the disk of each machine."
  type        = number
  default     = 40
}

variable "nodes_min" {
  type    = number
  default = 1
}

variable "nodes_max" {
  type    = number
  default = 3
}

variable "labels" {
  type    = map(string)
  default = {}
}

variable "access_rules" {
  description = "What the account of Slipway may do in the cluster."
  type = list(object({
    api_groups = list(string)
    resources  = list(string)
    verbs      = list(string)
  }))
}
