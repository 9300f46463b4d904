"""Configuration of a connection to an API server: address, TLS trust, and credential providers (static,
files, exec plugins), loaded from a kubeconfig or from within a pod. It must not open connections to a server
or know requests and objects. `dray.client` itself, `dray.cluster` and `dray.cli` import it.
"""
