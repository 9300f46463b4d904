"""Reads and changes a running cluster through its API: a snapshot as a bundle, the overview behind `dray
status`, explanations of pending pods, and fencing of nodes. It must not start services or open stores.
`dray.cluster.local` and `dray.cli` import it.
"""
