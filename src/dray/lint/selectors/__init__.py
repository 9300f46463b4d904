"""Lint checks of CEL device selectors: compilation with readable compiler messages, analysis of what a
selector reads, and evaluation against the published devices. It reads no files and knows no positions
beyond an offset into the expression; findings are located by `dray.lint.findings`. Only the document checks
and the cross-object checks of `dray.lint` import it.
"""
