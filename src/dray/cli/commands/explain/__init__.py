"""The command `dray explain`: for manifests, for a live cluster, and the pages both print. It must not derive
reasons itself, which is the task of `dray.explain` and `dray.cluster.live`. Only the command table imports
it.
"""
