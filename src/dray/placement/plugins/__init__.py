"""The ways to judge nodes for a pod, one plugin a file, called as in Kubernetes.

A plugin is a frozen value that answers with an opinion, a verdict or nothing; it knows no other plugin and no
cycle. The profile puts them in order and weighs them, and only the cycle asks them.
"""
