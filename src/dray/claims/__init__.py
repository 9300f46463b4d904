"""The life of a claim as rules: whose it is, who may use it, who holds which device, what may be asked for.

Values in, values out: nothing here knows a store, a clock or a network, and nothing is written here. Services
ask these rules and carry out what they say.
"""
