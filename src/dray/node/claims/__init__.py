"""Preparation of resource claims on a node, the counterpart of the kubelet's DRA manager: admission, the
record and its checkpoint, the plan of driver calls, recovery, and the Preparation objects in the API. It
starts no container and does not choose devices; drivers are reached only through `dray.node.plugins`. The
pod workers and the agent import it.
"""
