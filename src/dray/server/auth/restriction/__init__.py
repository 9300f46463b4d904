"""Admission rules about who may write which parts of an object: node restriction, driver restriction, claim
restriction, privilege escalation, and the ordered list of them all. It must not authenticate or grant
rights. app and the pod strategy may import it.
"""
