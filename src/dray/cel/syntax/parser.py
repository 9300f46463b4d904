"""The parser: turns tokens into a syntax tree.

Theory of operation: operator precedence with explicit stacks, so that nesting costs memory and not the
stack of the host. Every bracket that opens starts a `_Level` with operators and operands of its own; the
bracket that closes it turns the level into one operand of the level below. The parser is always in one of
two states: it wants an operand, or it has one and looks for what may follow. The condition of `a ? b : c` is
an operand, its middle a level that `:` closes, its end the last operand of an operator that binds weakest.

Chains of `&&` and of `||` become balanced trees, as in cel-go: long ones stay shallow.

Rules for this file: syntax only. Names, types and the values of literals are checked elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from dray.cel.faults import RejectedError
from dray.cel.issue_causes import (
    ExpectedInput,
    IssueCause,
    MissingBracket,
    ReservedWord,
    UndeclaredReference,
    UnexpectedInput,
)
from dray.cel.source import ExpressionIssue
from dray.cel.syntax import lexer, literals
from dray.cel.syntax.ast import MapEntry, Node, get_dotted_name
from dray.cel.syntax.grammar import (
    BINARY_PRECEDENCE,
    CLOSING_BRACKETS,
    CONSTANTS,
    EXPECTED_OPERAND,
    LITERAL_PARSERS,
    MAX_TEXT_LENGTH,
    NUMBERS,
    RESERVED_WORDS,
    TERNARY_PRECEDENCE,
    UNARY_PRECEDENCE,
)
from dray.cel.syntax.lexer import Token
from dray.cel.syntax.macros import expand_macro
from dray.cel.syntax.node_factory import MAX_DEPTH, NodeFactory, reject_depth


class _Operator:
    """An operator that waits for its last operand; a chain of `&&` or `||` has one offset for each."""

    __slots__ = ("binding", "offsets", "sign")

    def __init__(self, sign: str, binding: int, offset: int) -> None:
        self.sign = sign
        self.binding = binding
        self.offsets = [offset]


class _Level:
    """Everything between one opening bracket and where the parser stands."""

    __slots__ = (
        "entries",
        "function",
        "items",
        "key",
        "kind",
        "offset",
        "operands",
        "operators",
        "optional",
        "target",
    )

    def __init__(self, kind: str, offset: int, target: Node | None = None, function: str = "") -> None:
        self.kind = kind
        self.offset = offset
        self.target = target
        self.function = function
        self.operators: list[_Operator] = []
        self.operands: list[Node] = []
        self.items: list[Node] = []
        self.entries: list[MapEntry] = []
        self.optional: set[int] = set()
        self.key: Node | None = None


def parse(text: str) -> Node:
    """The tree of an expression; raises `RejectedError`."""
    if len(text) > MAX_TEXT_LENGTH:
        size = f"size: {len(text)}, limit {MAX_TEXT_LENGTH}"
        raise RejectedError((ExpressionIssue(0, f"expression code point size exceeds limit: {size}"),))
    tokens, issues = lexer.tokenize(text)
    if issues:
        raise RejectedError(tuple(issues))
    return _Parser(tokens).parse_expression()


class _Parser:
    """One run over the tokens of one expression."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.index = 0
        self.factory = NodeFactory()
        self.levels = [_Level("", 0)]
        self.has_operand = False

    def parse_expression(self) -> Node:
        while True:
            token = self._next_token()
            level = self.levels[-1]
            if not self.has_operand:
                self._parse_operand(level, token)
            elif token.kind in BINARY_PRECEDENCE:
                self._parse_binary(level, token)
            elif token.kind == lexer.END and not level.kind:
                return self._finish_operand(level)
            else:
                _AFTER_OPERAND.get(token.kind, _Parser._reject_after_operand)(self, level, token)

    # --- tokens ---

    def _next_token(self) -> Token:
        token = self.tokens[self.index]
        self.index += 1
        return token

    def _peek(self) -> Token:
        return self.tokens[min(self.index, len(self.tokens) - 1)]

    def _accept(self, kind: str) -> bool:
        if self._peek().kind != kind:
            return False
        self.index += 1
        return True

    # --- where an operand is wanted ---

    def _parse_operand(self, level: _Level, token: Token) -> None:
        kind = token.kind
        if kind in LITERAL_PARSERS:
            self._parse_literal(level, token.offset, token)
        elif kind in CONSTANTS:
            self._push_operand(level, self.factory.make_literal(token.offset, CONSTANTS[kind]))
        elif kind == lexer.IDENT:
            self._parse_name(level, token, token.text)
        elif kind == "." and self._peek().kind == lexer.IDENT:
            self._parse_name(level, token, self._next_token().text)
        elif kind == "(":
            self._open_level(_Level("(", token.offset))
        elif kind == "[":
            self._open_level(_Level("list", token.offset))
        elif kind == "{":
            self._open_level(_Level("{", token.offset))
        elif kind in ("!", "-"):
            self._parse_unary(level, token)
        elif kind == "?" and self._can_be_optional(level):
            level.optional.add(len(level.items) if level.kind == "list" else len(level.entries))
        elif kind == CLOSING_BRACKETS.get(level.kind) and self._can_close(level):
            self._close_empty(level)
        else:
            self._reject_operand(token)

    def _parse_literal(self, level: _Level, offset: int, token: Token, sign: str = "") -> None:
        try:
            value = LITERAL_PARSERS[token.kind](sign + token.text)
        except literals.LiteralError as bad:
            raise RejectedError((ExpressionIssue(offset, str(bad)),)) from None
        self._push_operand(level, self.factory.make_literal(offset, value))

    def _parse_name(self, level: _Level, token: Token, name: str) -> None:
        if name in RESERVED_WORDS:
            issue = ExpressionIssue(token.offset, f"reserved identifier: {name}", ReservedWord(name))
            raise RejectedError((issue,))
        opening = self._peek()
        if self._accept("("):
            self._open_level(_Level("call", opening.offset, None, name))
        else:
            self._push_operand(level, self.factory.make_ident(token.offset, name))

    def _parse_unary(self, level: _Level, token: Token) -> None:
        sign = token.kind
        following = self._peek()
        if sign == "-" and following.kind in NUMBERS:
            self._parse_literal(level, token.offset, self._next_token(), "-")
            return
        if (
            level.operators
            and level.operators[-1].binding == UNARY_PRECEDENCE
            and level.operators[-1].sign != sign
        ):
            self._reject_operand(token)
        count = 1
        while self._accept(sign):
            count += 1
        if self._peek().kind in ("!", "-") and not self._is_negative_number_next():
            self._reject_operand(self._peek())
        if count % 2:
            level.operators.append(_Operator(sign, UNARY_PRECEDENCE, token.offset))

    def _is_negative_number_next(self) -> bool:
        following = self.tokens[min(self.index + 1, len(self.tokens) - 1)]
        return self._peek().kind == "-" and following.kind in NUMBERS

    @staticmethod
    def _can_be_optional(level: _Level) -> bool:
        if level.kind == "list":
            return len(level.items) not in level.optional and not level.operators
        fresh = level.kind == "{" and level.key is None and not level.operators
        return fresh and len(level.entries) not in level.optional

    def _can_close(self, level: _Level) -> bool:
        """Whether a bracket may close here: nothing inside, or a list or map that ends with a comma."""
        if level.operators or level.key is not None or level.kind not in ("call", "list", "{"):
            return False
        count = len(level.entries) if level.kind == "{" else len(level.items)
        return count not in level.optional and (not count or level.kind != "call")

    def _close_empty(self, level: _Level) -> None:
        self.levels.pop()
        self._push_operand(self.levels[-1], self._build_level(level))

    # --- where an operand is there ---

    def _push_operand(self, level: _Level, node: Node) -> None:
        level.operands.append(node)
        self.has_operand = True

    def _open_level(self, level: _Level) -> None:
        if len(self.levels) > MAX_DEPTH:
            reject_depth(level.offset)
        self.levels.append(level)
        self.has_operand = False

    def _parse_binary(self, level: _Level, token: Token) -> None:
        binding = BINARY_PRECEDENCE[token.kind]
        chained = token.kind in ("&&", "||")
        self._reduce(level, binding + 1 if chained else binding)
        self.has_operand = False
        if chained and level.operators and level.operators[-1].sign == token.kind:
            level.operators[-1].offsets.append(token.offset)
        else:
            level.operators.append(_Operator(token.kind, binding, token.offset))

    def _parse_dot(self, level: _Level, token: Token) -> None:
        optional = self._accept("?")
        name = self._next_token()
        if name.kind != lexer.IDENT:
            raise RejectedError(
                (ExpressionIssue(name.offset, "Syntax error: no viable alternative at input '.'"),)
            )
        target = level.operands.pop()
        opening = self._peek()
        if not optional and self._accept("("):
            self._open_level(_Level("call", opening.offset, target, name.text))
        else:
            level.operands.append(self.factory.make_select(token.offset, target, name.text, optional))

    def _parse_bracket(self, level: _Level, token: Token) -> None:
        function = "_[?_]" if self._accept("?") else "_[_]"
        self._open_level(_Level("[", token.offset, level.operands.pop(), function))

    def _reject_brace(self, level: _Level, token: Token) -> None:
        name = get_dotted_name(level.operands[-1])
        if name is None:
            self._reject_after_operand(level, token)
        message = f"undeclared reference to '{name}' (in container '')"
        raise RejectedError((ExpressionIssue(token.offset, message, UndeclaredReference(name)),))

    def _parse_question(self, level: _Level, token: Token) -> None:
        if level.kind == "?":
            self._reject_after_operand(level, token)
        self._reduce(level, TERNARY_PRECEDENCE + 1)
        self._open_level(_Level("?", token.offset))

    def _parse_colon(self, level: _Level, token: Token) -> None:
        node = self._finish_operand(level)
        if level.kind == "?":
            self.levels.pop()
            below = self.levels[-1]
            below.operands.append(node)
            below.operators.append(_Operator("?", TERNARY_PRECEDENCE, level.offset))
        elif level.kind == "{" and level.key is None:
            level.key = node
            level.operands.clear()
        else:
            self._reject_after_operand(level, token)
        self.has_operand = False

    def _parse_comma(self, level: _Level, token: Token) -> None:
        if level.kind not in ("call", "list", "{") or (level.kind == "{" and level.key is None):
            self._reject_after_operand(level, token)
        self._collect_operand(level)
        self.has_operand = False

    def _close_level(self, level: _Level, token: Token) -> None:
        if token.kind != CLOSING_BRACKETS.get(level.kind) or (level.kind == "{" and level.key is None):
            self._reject_after_operand(level, token)
        self._collect_operand(level)
        self.levels.pop()
        self._push_operand(self.levels[-1], self._build_level(level))

    # --- putting things together ---

    def _collect_operand(self, level: _Level) -> None:
        """Move the finished operand of a level to its items or entries."""
        node = self._finish_operand(level)
        level.operands.clear()
        if level.key is None:
            level.items.append(node)
        else:
            level.entries.append(MapEntry(level.key, node, len(level.entries) in level.optional))
            level.key = None

    def _build_level(self, level: _Level) -> Node:
        make, offset, items = self.factory, level.offset, tuple(level.items)
        if level.kind == "(":
            return items[0]
        if level.kind == "list":
            return make.make_list(offset, items, frozenset(level.optional))
        if level.kind == "{":
            return make.make_map(offset, tuple(level.entries))
        if level.kind == "[":
            assert level.target is not None
            return make.make_call(offset, level.function, level.target, *items)
        macro = expand_macro(make, offset, level.function, level.target, items)
        return macro or make.make_call(offset, level.function, *items, target=level.target)

    def _finish_operand(self, level: _Level) -> Node:
        self._reduce(level, TERNARY_PRECEDENCE)
        return level.operands[-1]

    def _reduce(self, level: _Level, binding: int) -> None:
        """Apply every waiting operator that binds at least as strongly."""
        while level.operators and level.operators[-1].binding >= binding:
            self._apply_operator(level, level.operators.pop())

    def _apply_operator(self, level: _Level, operator: _Operator) -> None:
        operands, offset = level.operands, operator.offsets[0]
        if operator.binding == UNARY_PRECEDENCE:
            node: Node = self.factory.make_call(
                offset, "-_" if operator.sign == "-" else "!_", operands.pop()
            )
        elif operator.sign == "?":
            otherwise, then, condition = operands.pop(), operands.pop(), operands.pop()
            node = self.factory.make_call(offset, "_?_:_", condition, then, otherwise)
        elif operator.sign in ("&&", "||"):
            count = len(operator.offsets)
            terms = operands[-count - 1 :]
            del operands[-count - 1 :]
            node = self._balance_chain(operator, terms, 0, count - 1)
        else:
            right, left = operands.pop(), operands.pop()
            function = "@in" if operator.sign == "in" else f"_{operator.sign}_"
            node = self.factory.make_call(offset, function, left, right)
        operands.append(node)

    def _balance_chain(self, operator: _Operator, terms: list[Node], low: int, high: int) -> Node:
        middle = (low + high + 1) // 2
        left = terms[middle] if middle == low else self._balance_chain(operator, terms, low, middle - 1)
        right = (
            terms[middle + 1] if middle == high else self._balance_chain(operator, terms, middle + 1, high)
        )
        return self.factory.make_call(operator.offsets[middle], f"_{operator.sign}_", left, right)

    # --- what does not belong ---

    def _reject_operand(self, token: Token) -> NoReturn:
        verb = "mismatched" if token.kind == lexer.END else "extraneous"
        message = f"Syntax error: {verb} input {token} expecting {EXPECTED_OPERAND}"
        cause = UnexpectedInput(token.text, ExpectedInput.OPERAND)
        raise RejectedError((ExpressionIssue(token.offset, message, cause),))

    def _reject_after_operand(self, level: _Level, token: Token) -> NoReturn:
        closer = CLOSING_BRACKETS.get(level.kind)
        cause: IssueCause
        if closer is None:
            message = f"extraneous input {token} expecting <EOF>"
            cause = UnexpectedInput(token.text, ExpectedInput.END)
        elif token.kind == lexer.END:
            message, cause = f"missing '{closer}' at {token}", MissingBracket(closer)
        else:
            message = f"mismatched input {token} expecting '{closer}'"
            cause = UnexpectedInput(token.text, ExpectedInput.CLOSING_BRACKET, closer)
        raise RejectedError((ExpressionIssue(token.offset, f"Syntax error: {message}", cause),))


_AFTER_OPERAND: Final[dict[str, Callable[[_Parser, _Level, Token], None]]] = {
    ".": _Parser._parse_dot,
    "[": _Parser._parse_bracket,
    "{": _Parser._reject_brace,
    "?": _Parser._parse_question,
    ":": _Parser._parse_colon,
    ",": _Parser._parse_comma,
    ")": _Parser._close_level,
    "]": _Parser._close_level,
    "}": _Parser._close_level,
}
