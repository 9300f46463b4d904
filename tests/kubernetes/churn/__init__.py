"""Churn for an hour: kube-scheduler and kube-controller-manager with default flags on one server."""
