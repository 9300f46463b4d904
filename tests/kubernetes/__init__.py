"""Tests against Kubernetes' own programs, in the directory `DRAY_KUBE_BIN`; skipped without it."""
