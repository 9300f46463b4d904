"""Device inventory: published slices, device classes and usage, prepared once as the pools that each node
sees and as node shapes. It must not contain anything about claims being searched for, feature gates or time.
The search, the explanation, the scheduler and the simulation import it.
"""
