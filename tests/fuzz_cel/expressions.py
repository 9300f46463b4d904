"""Random expressions over a device: mostly well typed, sometimes not, so that every way to fail is seen."""

from __future__ import annotations

import random
from collections.abc import Callable

DOMAIN = "dra.example.com"

INTS = ("0", "1", "2", "-1", "3", "7", "9223372036854775807", "-9223372036854775808", "0x10")
UINTS = ("0u", "1u", "7u", "18446744073709551615u")
DOUBLES = ("0.0", "1.0", "1.5", "-2.5", "1e3", "3.0", "1e300")
STRINGS = ('""', '"a"', '"b"', '"Hello World"', '"größe"', '"1"', '"true"', "'x'", 'r"\\d"', '"1.5"')
WORDS = {
    "int": ("i", "neg"),
    "bool": ("b", "f"),
    "string": ("s", "e", "u"),
    "list(int)": ("li",),
    "list(string)": ("ls",),
    "list(bool)": ("lb",),
    "dyn": ("i", "neg", "b", "f", "s", "e", "u", "li", "ls", "lb", "nope"),
}
TYPES = ("bool", "int", "uint", "double", "string", "list(int)", "list(string)", "map", "optional")

Way = Callable[[int], str]


class Expressions:
    """A source of expressions; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.locals: list[tuple[str, str]] = []
        self.named = 0

    def selector(self) -> str:
        """One expression that should be a boolean."""
        self.locals.clear()
        self.named = 0
        return self.boolean(self.chance.randint(1, 5))

    def pick(self, *options: str) -> str:
        return self.chance.choice(options)

    def of(self, kind: str, depth: int) -> str:
        """An expression of a type; now and then of another, or of one only the run time knows."""
        roll = self.chance.random()
        if roll < 0.04:
            kind = self.chance.choice(TYPES)
        elif roll < 0.14:
            return (
                f"dyn({self.of(self.chance.choice(TYPES), depth - 1)})"
                if depth > 0
                else self.attribute("dyn")
            )
        named = [name for name, bound in self.locals if bound == kind]
        if named and self.chance.random() < 0.4:
            return self.chance.choice(named)
        return self._ways()[kind](depth)

    def _ways(self) -> dict[str, Way]:
        return {
            "bool": self.boolean,
            "int": self.whole,
            "uint": lambda depth: self.number("uint", UINTS, depth),
            "double": lambda depth: self.number("double", DOUBLES, depth),
            "string": self.string,
            "list(int)": lambda depth: self.items("int", depth),
            "list(string)": lambda depth: self.items("string", depth),
            "list(bool)": lambda depth: self.items("bool", depth),
            "map": self.entries,
            "optional": self.optional,
        }

    def attribute(self, kind: str) -> str:
        word = self.chance.choice(WORDS[kind])
        return f'device.attributes["{DOMAIN}"]' + self.pick(f".{word}", f'["{word}"]')

    # --- by type ---

    def boolean(self, depth: int) -> str:
        if depth <= 0:
            return self.pick("true", "false", self.attribute("bool"), 'device.driver == "x"')
        return self.chance.choice(
            (
                self._logic,
                self._logic,
                self._comparison,
                self._comparison,
                self._membership,
                self._text_test,
                self._quantifier,
                self._presence,
                self._ternary_bool,
                self._sets,
                self._bind_bool,
                self._optional_bool,
            )
        )(depth - 1)

    def whole(self, depth: int) -> str:
        if depth <= 0:
            return self.pick(self.chance.choice(INTS), self.attribute("int"))
        return self.chance.choice(
            (
                lambda: self._arithmetic("int", depth - 1),
                lambda: f"size({self.of(self.pick('string', 'list(int)', 'map'), depth - 1)})",
                lambda: f"{self.of(self.pick('string', 'list(int)', 'map'), depth - 1)}.size()",
                lambda: f"int({self.of(self.pick('string', 'double', 'uint', 'int'), depth - 1)})",
                lambda: f"{self.items('int', depth - 1)}[{self.of('int', 0)}]",
                lambda: f"{self.entries(depth - 1)}.{self.pick('a', 'b')}",
                lambda: f"{self.of('optional', depth - 1)}.orValue({self.of('int', depth - 1)})",
                lambda: f"{self.of('optional', depth - 1)}.value()",
                lambda: f"-({self.of('int', depth - 1)})",
                lambda: self._ternary("int", depth - 1),
                lambda: f"{self.of('string', depth - 1)}.indexOf({self.of('string', 0)})",
                lambda: f"{self.of('string', depth - 1)}.lastIndexOf({self.of('string', 0)})",
            )
        )()

    def number(self, kind: str, literals: tuple[str, ...], depth: int) -> str:
        if depth <= 0:
            return self.chance.choice(literals)
        convert = f"{kind}({self.of(self.pick('string', 'int', 'double', 'uint'), depth - 1)})"
        return self.pick(convert, self._arithmetic(kind, depth - 1), self.chance.choice(literals))

    def string(self, depth: int) -> str:
        if depth <= 0:
            return self.pick(self.chance.choice(STRINGS), self.attribute("string"), "device.driver")
        text = self.of("string", depth - 1)
        return self.chance.choice(
            (
                lambda: f"({text} + {self.of('string', depth - 1)})",
                lambda: f"{text}.{self.pick('lowerAscii', 'upperAscii', 'trim')}()",
                lambda: f"{text}.substring({self.of('int', 0)})",
                lambda: f"{text}.substring({self.of('int', 0)}, {self.of('int', 0)})",
                lambda: f"{text}.charAt({self.of('int', 0)})",
                lambda: f"{text}.replace({self.of('string', 0)}, {self.of('string', 0)})",
                lambda: f"string({self.of(self.pick('int', 'bool', 'string', 'uint'), depth - 1)})",
                lambda: f"{self.of('list(string)', depth - 1)}.join({self.of('string', 0)})",
                lambda: f"{self.of('list(string)', depth - 1)}[{self.of('int', 0)}]",
                lambda: self._ternary("string", depth - 1),
            )
        )()

    def items(self, kind: str, depth: int) -> str:
        count = self.chance.randint(0, 3)
        literal = f"[{', '.join(self.of(kind, depth - 1) for _ in range(count))}]"
        whole = f"list({kind})"
        if depth <= 0 or whole not in WORDS:
            return self.pick(literal, self.attribute(whole)) if whole in WORDS else literal
        source = self.of(whole, depth - 1)
        ways = [
            lambda: literal,
            lambda: f"({source} + {self.of(whole, depth - 1)})",
            lambda: f"{source}.{self._walk('map', kind, kind, depth)}",
            lambda: f"{source}.{self._walk('filter', kind, 'bool', depth)}",
            lambda: f"{source}.{self.pick('distinct', 'sort')}()",
            lambda: f"{source}.slice({self.of('int', 0)}, {self.of('int', 0)})",
        ]
        if kind == "string":
            ways.append(lambda: f"{self.of('string', depth - 1)}.split({self.pick(*STRINGS[1:])})")
        if kind == "int":
            ways.append(lambda: f"lists.range({self.pick('0', '1', '3')})")
        return self.chance.choice(ways)()

    def entries(self, depth: int) -> str:
        keys = self.chance.sample(["a", "b", "c"], self.chance.randint(1, 3))
        return "{" + ", ".join(f'"{key}": {self.of("int", depth - 1)}' for key in keys) + "}"

    def optional(self, depth: int) -> str:
        if depth <= 0:
            word = self.chance.choice(WORDS["dyn"])
            return self.pick("optional.of(1)", "optional.none()", f'device.attributes["{DOMAIN}"].?{word}')
        return self.chance.choice(
            (
                lambda: f"optional.of({self.of('int', depth - 1)})",
                lambda: f'{self.entries(depth - 1)}[?"{self.pick("a", "z")}"]',
                lambda: f"{self.items('int', depth - 1)}[?{self.of('int', 0)}]",
                lambda: f"{self.of('optional', depth - 1)}.or({self.of('optional', depth - 1)})",
                lambda: f"{self.of('optional', depth - 1)}.{self._walk('optMap', 'int', 'int', depth)}",
            )
        )()

    # --- pieces ---

    def _logic(self, depth: int) -> str:
        sign = self.pick("&&", "||")
        terms = [self.of("bool", depth) for _ in range(self.chance.randint(2, 4))]
        joined = f" {sign} ".join(f"({term})" for term in terms)
        return self.pick(joined, f"!({joined})")

    def _comparison(self, depth: int) -> str:
        kind = self.pick("int", "uint", "double", "string", "bool", "list(int)", "list(string)", "map")
        sign = (
            self.pick("==", "!=")
            if "(" in kind or kind == "map"
            else self.pick("==", "!=", "<", "<=", ">", ">=")
        )
        other = kind if self.chance.random() < 0.9 else self.chance.choice(TYPES)
        return f"{self.of(kind, depth)} {sign} {self.of(other, depth)}"

    def _membership(self, depth: int) -> str:
        kind = self.pick("int", "string")
        if self.chance.random() < 0.3:
            # What is never a key is not in a map for cel-go, and an error elsewhere: ask for keys only.
            return f"{self.pick(*STRINGS, self.attribute('string'))} in {self.entries(depth)}"
        return (
            f"{self.of(kind, depth)} in {self.pick(self.of(f'list({kind})', depth), self.attribute('dyn'))}"
        )

    def _text_test(self, depth: int) -> str:
        name = self.pick("startsWith", "endsWith", "contains", "matches")
        argument = self.pick('"^H"', '"[a-z]+"', '"o"') if name == "matches" else self.of("string", depth)
        return f"{self.of('string', depth)}.{name}({argument})"

    def _quantifier(self, depth: int) -> str:
        name = self.pick("all", "exists", "exists_one")
        if self.chance.random() < 0.2:
            return f"{self.entries(depth)}.{self._walk(name, 'string', 'bool', depth)}"
        if self.chance.random() < 0.2:
            return f"{self.attribute('dyn')}.{self._walk(name, 'dyn', 'bool', depth)}"
        kind = self.pick("int", "string")
        return f"{self.of(f'list({kind})', depth)}.{self._walk(name, kind, 'bool', depth)}"

    def _walk(self, name: str, kind: str, made: str, depth: int) -> str:
        """`name(variable, expression)`, where the expression may use the variable."""
        self.named += 1
        variable = f"v{self.named}"
        self.locals.append((variable, kind))
        body = self.of(made, depth - 1)
        if kind == "dyn":
            body = f"{variable} == {self.of(self.pick('int', 'string'), 0)}"
        self.locals.pop()
        return f"{name}({variable}, {body})"

    def _presence(self, depth: int) -> str:
        word = self.chance.choice(WORDS["dyn"])
        return self.pick(f'has(device.attributes["{DOMAIN}"].{word})', f"has({self.entries(depth)}.a)")

    def _ternary_bool(self, depth: int) -> str:
        return self._ternary("bool", depth)

    def _ternary(self, kind: str, depth: int) -> str:
        return f"({self.of('bool', depth)} ? {self.of(kind, depth)} : {self.of(kind, depth)})"

    def _sets(self, depth: int) -> str:
        name = self.pick("contains", "equivalent", "intersects")
        kind = self.pick("list(int)", "list(string)")
        return f"sets.{name}({self.of(kind, depth)}, {self.of(kind, depth)})"

    def _bind_bool(self, depth: int) -> str:
        kind = self.pick("int", "string", "bool")
        value = self.of(kind, depth)
        walked = self._walk("cel.bind", kind, "bool", depth)
        variable, _, body = walked[len("cel.bind(") : -1].partition(", ")
        return f"cel.bind({variable}, {value}, {body})"

    def _optional_bool(self, depth: int) -> str:
        return f"{self.of('optional', depth)}.hasValue()"

    def _arithmetic(self, kind: str, depth: int) -> str:
        sign = self.pick("+", "-", "*", "/", "%") if kind != "double" else self.pick("+", "-", "*", "/")
        return f"({self.of(kind, depth)} {sign} {self.of(kind, depth)})"
