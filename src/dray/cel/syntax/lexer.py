"""The lexer: splits text into tokens.

One regular expression matches every token; it has no nested repetition, so lexing takes linear time. Text
that is no token becomes an issue, and lexing continues after it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dray.cel.issue_causes import UnknownToken
from dray.cel.source import ExpressionIssue


class Token(NamedTuple):
    """A token. `kind` is the operator itself for operators, else one of the names below."""

    kind: str
    text: str
    offset: int

    def __str__(self) -> str:
        return f"'{self.text}'" if self.kind != END else "'<EOF>'"


IDENT: Final = "IDENTIFIER"
INT: Final = "NUM_INT"
UINT: Final = "NUM_UINT"
FLOAT: Final = "NUM_FLOAT"
STRING: Final = "STRING"
BYTES: Final = "BYTES"
END: Final = "<EOF>"
KEYWORDS: Final = frozenset({"true", "false", "null", "in"})

# A single quote that is followed by two more opens a triple quote, closed or not. Without this, text full of
# triple quotes that are never closed would be scanned again and again.
_ESCAPED: Final = r"(?!{quote}{quote})(?:[^{quote}\\\n\r]|\\[^\n\r])*"
_TRIPLE: Final = r"(?:[^\\]|\\[\s\S])*?"

_QUOTED: Final = "|".join(
    [
        r'[rR]"""[\s\S]*?"""',
        r"[rR]'''[\s\S]*?'''",
        r'[rR]"(?!"")[^"\n\r]*"',
        r"[rR]'(?!'')[^'\n\r]*'",
        rf'"""{_TRIPLE}"""',
        rf"'''{_TRIPLE}'''",
        rf'"{_ESCAPED.format(quote=chr(34))}"',
        rf"'{_ESCAPED.format(quote=chr(39))}'",
    ]
)

_TOKEN = re.compile(
    rf"""
      (?P<blank>   [\t\x20\r\n\f]+ | //[^\n]* )
    | (?P<BYTES>   [bB](?:{_QUOTED}) )
    | (?P<STRING>  {_QUOTED} )
    | (?P<NUM_FLOAT> [0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<NUM_UINT>  (?:0x[0-9a-fA-F]+|[0-9]+)[uU] )
    | (?P<NUM_INT>   0x[0-9a-fA-F]+|[0-9]+ )
    | (?P<IDENTIFIER> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<sign>    \|\||&&|==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{{}}] )
    """,
    re.VERBOSE,
)


def tokenize(text: str) -> tuple[list[Token], list[ExpressionIssue]]:
    """The tokens of a text, closed by the token `END`, and an issue for each stretch that is none."""
    result: list[Token] = []
    issues: list[ExpressionIssue] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            end = _skip_invalid(text, place)
            found = text[place:end][:40]
            message = f"Syntax error: token recognition error at: '{found}'"
            issues.append(ExpressionIssue(place, message, UnknownToken(found)))
            place = end
            continue
        kind = match.lastgroup or ""
        if kind != "blank":
            word = match[0]
            sign = kind == "sign" or (kind == IDENT and word in KEYWORDS)
            result.append(Token(word if sign else kind, word, place))
        place = match.end()
    result.append(Token(END, "", len(text)))
    return result, issues


def _skip_invalid(text: str, place: int) -> int:
    # A quote that is never closed swallows the rest of its line, or of the text.
    if text[place] not in "\"'":
        return place + 1
    triple = text.startswith(('"""', "'''"), place)
    end = -1 if triple else text.find("\n", place)
    return len(text) if end < 0 else end
