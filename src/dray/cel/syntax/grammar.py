"""Tables of the grammar: operators, their precedence, and reserved words.

Rules for this file: tables only; `parser` reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dray.cel.syntax import lexer, literals
from dray.cel.values import Value

MAX_TEXT_LENGTH: Final = 100_000
"""Code points; as in cel-go."""

RESERVED_WORDS: Final = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "namespace",
        "package",
        "return",
        "var",
        "void",
        "while",
    ]
)
EXPECTED_OPERAND: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', "
    "NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
TERNARY_PRECEDENCE: Final = 1
BINARY_PRECEDENCE: Final = {
    "||": 2, "&&": 3,
    "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "in": 4,
    "+": 5, "-": 5, "*": 6, "/": 6, "%": 6,
}  # fmt: skip
UNARY_PRECEDENCE: Final = 7
CONSTANTS: Final = {"true": True, "false": False, "null": None}
NUMBERS: Final = frozenset({lexer.INT, lexer.FLOAT})
LITERAL_PARSERS: Final[dict[str, Callable[[str], Value]]] = {
    lexer.INT: literals.parse_int,
    lexer.UINT: literals.parse_uint,
    lexer.FLOAT: literals.parse_double,
    lexer.STRING: literals.parse_string,
    lexer.BYTES: literals.parse_bytes,
}
CLOSING_BRACKETS: Final = {"(": ")", "call": ")", "[": "]", "list": "]", "{": "}", "?": ":"}
