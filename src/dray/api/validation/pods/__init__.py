"""Rules of pods and pod templates as Kubernetes 1.37 has them.

`spec` and `volumes` validate the parts of a pod, the modules beside them the pod as a whole and its changes;
they read documents and never structs, so that they see every field. They depend on no gate, no default and no
other object. `dray.api.validation` imports this package and nothing else does.
"""
