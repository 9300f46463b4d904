"""Scheduler plugins, one per module, named as in Kubernetes.

A plugin is a value whose `pre_filter` returns a result, a rejection or None. It must not refer to another
plugin or to the scheduling cycle. The profile orders and weighs plugins, and only the cycle calls them;
explanations and the simulation import single rules.
"""
