"""Admission rules on who may write which parts of an object.

It contains node restriction, driver restriction, claim restriction and privilege escalation, and the ordered
list of them all. It must not authenticate users or grant rights. `app` and the pod strategy may import it.
"""
