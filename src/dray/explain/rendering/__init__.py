"""Output of a diagnosis: the text page, the one-line summary for events, and the JSON document with stable
keys. It runs no search and looks nothing up; everything it renders is in the diagnosis. The command line,
the live explanation and `dray.explain` itself import it.
"""
