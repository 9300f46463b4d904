"""Lint checks of CEL device selectors: compilation with readable compiler messages, and evaluation against
the published devices. It reads no files and has no positions beyond an offset into the expression;
`dray.lint.findings` locates findings in files. Only the document checks and the cross-object checks of
`dray.lint` import it.
"""
