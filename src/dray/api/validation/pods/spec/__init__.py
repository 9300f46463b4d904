"""Rules of the spec of a pod, one module per concern.

A rule takes a document and its path and yields errors, in the order of Kubernetes. No rule reads metadata or
status, and none knows whether the spec is that of a pod or of a template. The package above imports it.
"""
