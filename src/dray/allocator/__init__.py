"""The heart: given slices, classes, claims and what is taken, find the devices, and tell how.

A pure search over frozen values: the same question has the same answer and the same story. Nothing here
writes words for people (see explain), reads gates (see admit), knows the time or makes identities of
its own. Explain, placement, the simulator and the doors import it; authors of autoscalers may, too.
"""
