"""Manifests that deploy a driver to a cluster: accounts, RBAC rules, admission policy, DaemonSet,
Deployments, classes and webhook configuration. It must not contain anything that talks to a cluster; it is
pure. Only `dray.driver.service` imports it.
"""
