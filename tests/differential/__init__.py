"""The same objects and pods in two clusters, and what became of them compared field by field.

`python -m tests.differential A B` takes the kubeconfigs of any two clusters that have nothing else to
do: both need an API server, a scheduler and a claim controller, but no nodes.
"""
