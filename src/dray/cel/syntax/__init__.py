"""The CEL syntax: lexer, parser with macro expansion, the syntax tree with its node factory and traversals,
and which paths of a variable an expression reads. It contains no types, costs or evaluation, and never
resolves names or checks values beyond the grammar. Every other package of `dray.cel` may import it; from
outside, only selector analysis in `dray.api.devices` walks the tree.
"""
