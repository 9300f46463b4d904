"""Configuration of a connection to an API server: the server address, TLS trust, credential providers
(static, files, exec plugins), and kubeconfig and in-cluster loading. It must not open connections to a server
or know requests and objects. `dray.client` itself, `dray.cluster` and `dray.cli` import it.
"""
