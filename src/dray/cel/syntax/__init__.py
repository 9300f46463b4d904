"""The CEL syntax: lexer, parser with macro expansion, the syntax tree with its node factory and traversals,
and which paths of a variable an expression reads. It contains no types, costs or evaluation, and never
judges names or values beyond what the grammar says. Every other package of `dray.cel` may import it; from
outside, only selector analysis in `dray.lint` walks the tree.
"""
