"""Controllers that do what kube-controller-manager does elsewhere: accounts, lost nodes and their pods.

It must not contain anything about claims. Only the runner imports it.
"""
