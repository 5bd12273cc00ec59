# A PostgreSQL database of RDS, encrypted, in subnets that exist.
terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "5.94.1"
    }
    random = {
      source  = "hashicorp/random"
      version = "3.7.1"
    }
  }
}

variable "id" {
  type = string
}

variable "engine_version" {
  type = string
}

variable "instance_type" {
  type    = string
  default = "db.t4g.micro"
}

variable "disk_type" {
  type    = string
  default = "gp3"
}

variable "storage" {
  type    = number
  default = 20
}

variable "accessibility" {
  type    = string
  default = "PRIVATE"
}

# Chosen by the operator: which subnets it is in, and from where it is reached.
variable "subnet_group" {
  type = string
}

variable "security_groups" {
  type = list(string)
}

resource "random_password" "master" {
  length  = 32
  special = false
}

resource "aws_db_instance" "database" {
  identifier                  = "slipway-${var.id}"
  engine                      = "postgres"
  engine_version              = var.engine_version
  allow_major_version_upgrade = true
  apply_immediately           = true
  instance_class              = var.instance_type
  storage_type                = var.disk_type
  allocated_storage           = max(20, var.storage)
  storage_encrypted           = true
  db_name                     = "main"
  username                    = "slipway"
  password                    = random_password.master.result
  db_subnet_group_name        = var.subnet_group
  vpc_security_group_ids      = var.security_groups
  publicly_accessible         = var.accessibility == "PUBLIC"
  backup_retention_period     = 7
  skip_final_snapshot         = false
  final_snapshot_identifier   = "slipway-${var.id}-final"
}

output "host" {
  value = aws_db_instance.database.address
}

output "port" {
  value = aws_db_instance.database.port
}

output "login" {
  value = aws_db_instance.database.username
}

output "password" {
  value     = random_password.master.result
  sensitive = true
}

output "database" {
  value = aws_db_instance.database.db_name
}
