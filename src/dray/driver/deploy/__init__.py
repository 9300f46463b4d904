"""Manifests that deploy a driver to a cluster.

The package holds accounts with RBAC rules and the admission policy (`rbac`), the DaemonSet and Deployments
(`workloads`), and the webhook's Service and configuration. It is pure and must not contain anything that
calls a cluster. Only `dray.driver.service` imports it.
"""
