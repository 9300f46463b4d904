"""Commands for authors of drivers: new and conformance. They must not contain checks or templates, which
belong to `dray.driver`. Only the command table imports it.
"""
