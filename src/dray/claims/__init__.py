"""Claim rules: lifecycle, reservation, eviction, quota and the device ledger, as pure functions.

Values in, values out: services call these rules and perform the actions they return. This package must not
contain storage access, a clock or a network. The API server, the controllers, the scheduler, the node agent,
the simulation and commands import it.
"""
