"""Manifests written for older API versions: recognised shapes, their repair into the current form, and the
mapping of field paths back to the file. It contains no rule of the current API and guesses nothing that
could have another meaning. The document checks of `dray.lint` and `dray convert` import it.
"""
