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
  default = "t3.medium"
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

variable "production" {
  type    = bool
  default = false
}

variable "log_days" {
  type    = number
  default = 90
}

variable "metadata_imds" {
  description = "Whether machines ask for a token before they answer about themselves: required or optional."
  type        = string
  default     = "required"
}
