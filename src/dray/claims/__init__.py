"""The life of a claim as rules: who holds which device, what a namespace may ask for.

Values in, values out: nothing here knows a store, a clock or a network, and nothing is written here. Services
ask these rules and carry out what they say.
"""
