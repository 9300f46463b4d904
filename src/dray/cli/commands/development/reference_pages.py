"""The reference pages, made from the tables that the code itself uses.

Rules for this file: no fact is written here, only how facts are laid out; what a page says changes when its
table changes. Pages are Markdown, and the same tables always make the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import click
from msgspec import inspect

from dray.api.field_docs import words_of
from dray.api.kinds import KINDS, Kind
from dray.api.strategies.defaults import DEFAULTS, NOW
from dray.api.strategies.gated_fields import GATED
from dray.api.validation import LIMITS
from dray.gates import GATES, GateSet
from dray.lint import RULES

if TYPE_CHECKING:
    from dray.telemetry.metrics import Measure

_MADE = "<!-- Made by `make docs` from the tables in the code; change those, not this page. -->"


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", _MADE, *parts]) + "\n"


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(titles)
    lines = [titles, ["---"] * len(titles), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def gates() -> str:
    """Every gate, and the fields behind it."""
    rows = [
        [f"`{gate.name}`", gate.stage.value, "on" if on else "off", _code(gate.requires), gate.about]
        for gate, on in GateSet.default()
    ]
    fields = [
        [f"`{gate}`", kind.partition(".")[0], f"`{field}`"]
        for gate in GATES
        for kind, patterns in GATED.get(gate, {}).items()
        for field in patterns
    ]
    return _page(
        "Feature gates",
        "Switch them with `--feature-gates A=true,B=false`; `AllAlpha` and `AllBeta` stand for whole stages.",
        _table(["gate", "stage", "default", "requires", "about"], rows),
        "## Fields behind gates",
        "With the gate off, these are dropped from new objects. `[]` is every item of a list, `{}` every "
        "entry of a map. The kinds of `cdi.k8s.io` stand behind `DRAControlPlaneController` as a whole.",
        _table(["gate", "kind", "field"], fields),
    )


def limits() -> str:
    """Every limit."""
    rows = [[limit.where, f"{limit.largest:,}", limit.counted] for limit in LIMITS]
    return _page(
        "Limits", "An object beyond one of these is refused.", _table(["where", "at most", "of"], rows)
    )


def server_limits() -> str:
    """Every limit of the server."""
    from dray.server.http.flow_control import CLASSES
    from dray.server.http.limits import FIXED, rows

    classes = [[row.name, row.about, f"{row.share:.0%}"] for row in CLASSES]
    return _page(
        "Limits of the server",
        "What one client may take of what all need. A limit that is hit is counted in "
        "`dray_requests_refused_total`, by its name. Set them with `dray server --limit NAME=VALUE`.",
        _table(
            ["limit", "bounds", "default", "beyond it"],
            ([f"`{word}`", *rest] for word, *rest in rows()),
        ),
        "## Limits that are fixed",
        _table(["bounds", "at most", "beyond it"], FIXED),
        "## Who comes first",
        "Requests of a class may fill the places of `max-in-flight` up to its share; the rest is left for "
        "the classes above. In a queue, users take turns. Health checks always pass.",
        _table(["class", "requests", "share"], classes),
    )


def metrics() -> str:
    """Every metric of every service."""
    return _page(
        "Metrics",
        "What `/metrics` tells, in the text format of Prometheus: that of the server, and for `dray up` that "
        "of everything it runs; a scheduler or controllers that run alone tell theirs at "
        "`--metrics-address`. Names are those of Kubernetes where it has them. Labels never hold names of "
        "objects, users or namespaces, and what the server does not know is `other`. The metrics of the "
        "process (`process_*`) and of Python's garbage collector (`python_gc_*`) come with them.",
        *(f"## {title}\n\n{_measures(rows)}" for title, rows in metric_tables().items()),
    )


def metric_tables() -> Mapping[str, Mapping[str, Measure]]:
    """The metrics by the service that tells them."""
    from dray.controllers import metrics as controllers
    from dray.driver import metrics as driver
    from dray.driver.classic import async_controller
    from dray.node import agent_metrics as node
    from dray.scheduler import metrics as scheduler
    from dray.server.observability import metrics as server

    return {
        "The server": server.MEASURES,
        "The scheduler": scheduler.MEASURES,
        "The controllers": controllers.MEASURES,
        "Node agents": node.MEASURES,
        "Drivers": {**driver.MEASURES, **async_controller.MEASURES},
    }


def _measures(rows: Mapping[str, Measure]) -> str:
    cells = [[f"`{row.name}`", row.sort.value, _code(row.labels), row.about] for row in rows.values()]
    return _table(["metric", "type", "labels", "about"], cells)


def driver_checks() -> str:
    """Every check of `dray driver conformance`."""
    from dray.driver.conformance.suite import CHECKS, CLASSIC_CHECKS

    titles = ["check", "what is true of a good driver", "hint"]
    return _page(
        "Checks of drivers",
        "What `dray driver conformance` holds a driver against, in this order.",
        _table(titles, ([f"`{each.name}`", each.title, each.hint] for each in CHECKS)),
        "## Drivers for classic claims",
        "Those that register as `ResourcePlugin` (KEP-3063).",
        _table(titles, ([f"`{each.name}`", each.title, each.hint] for each in CLASSIC_CHECKS)),
    )


def differences() -> str:
    """Every difference from the allocator of Kubernetes that is meant to be."""
    from dray.simulation.vectors.reference.departures import DECISIONS

    built = [[f"`{name.value}`", said.text] for name, said in DECISIONS.items() if said.built]
    missing = [[f"`{name.value}`"] for name, said in DECISIONS.items() if not said.built]
    return _page(
        "Differences from Kubernetes",
        "Where the allocator answers otherwise than that of Kubernetes; `dray vectors run` uses these names.",
        _table(["difference", "decision"], built),
        "## Not built",
        "Features of Kubernetes that dray does not have; a vector that needs one is counted as not built.",
        _table(["gate of Kubernetes"], missing),
    )


def lint_rules() -> str:
    """Every rule of lint, with a manifest that breaks it."""
    rows = [[f"[`{rule.id}`](#{rule.id})", rule.severity.value, rule.about] for rule in RULES.values()]
    details = [
        f"## {rule.id}\n\n{rule.severity.value.capitalize()}: {rule.about}.\n\n```yaml\n{rule.example}\n```"
        for rule in RULES.values()
    ]
    return _page("Rules of `dray lint`", _table(["rule", "weight", "about"], rows), *details)


def kinds() -> str:
    """Every kind of object that dray knows, with its fields."""
    rows = [
        [
            kind.name if kind.bystander else f"[{kind.name}](#{_anchor(kind)})",
            f"`{kind.group}`" if kind.group else "(core)",
            _code(kind.versions),
            "namespace" if kind.namespaced else "cluster",
            _code(kind.subresources),
        ]
        for kind in KINDS
    ]
    return _page(
        "Kinds and their fields",
        "Fields are those of the first version of a kind; older versions are brought to it. A kind that is "
        "marked as open keeps every field it comes with, and only those listed are read; a kind without a "
        "section of its own is kept whole and not looked into.",
        _table(["kind", "group", "versions", "lives in", "subresources"], rows),
        *(_kind(kind) for kind in KINDS if not kind.bystander),
    )


def _title(kind: Kind) -> str:
    return f"{kind.name} ({kind.internal_api_version})"


def _anchor(kind: Kind) -> str:
    """The anchor that Markdown makes of a title."""
    kept = (char for char in _title(kind).lower().replace(" ", "-") if char.isalnum() or char == "-")
    return "".join(kept)


def _kind(kind: Kind) -> str:
    about = _about(kind.type) + (" Open: other fields are kept." if kind.open else "")
    rows = [
        [f"`{field}`", shape, _default(kind, field), _code(_gates_of(kind, field)), words]
        for field, shape, words in _fields(kind.type, "")
    ]
    return f"## {_title(kind)}\n\n{about}\n\n" + _table(["field", "type", "default", "gates", "about"], rows)


def _default(kind: Kind, field: str) -> str:
    row = next((row for row in DEFAULTS.get(kind.type, ()) if row.field == field), None)
    if row is None:
        return ""
    value = "the time" if row.value is NOW else f"`{row.value}`"
    return value if row.about == "always" else f"{value} {row.about}"


def _gates_of(kind: Kind, field: str) -> list[str]:
    """The gates a field stands behind, by itself or inside a field that does."""
    return [
        gate
        for gate, by_kind in GATED.items()
        if any(
            field == behind or field.startswith((f"{behind}.", f"{behind}[", f"{behind}{{"))
            for behind in by_kind.get(kind.qualified_name, ())
        )
    ]


def _about(shape: type) -> str:
    return (shape.__doc__ or "").strip().partition("\n")[0]


_LEAVES = ("ObjectMeta", "NodeSelector")
"""Structs that are everywhere and the same everywhere; their fields are not repeated."""


def _fields(shape: type, prefix: str) -> Iterator[tuple[str, str, str]]:
    """Every field below a struct, by its path, with its type and what it is for."""
    words = words_of(shape)
    info = inspect.type_info(shape)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        path = f"{prefix}{field.encode_name}"
        marks, inner = _unwrapped(field.type)
        if isinstance(inner, inspect.StructType) and inner.cls.__name__ not in _LEAVES:
            yield path + marks, _many(marks, inner.cls.__name__), words[field.encode_name]
            yield from _fields(inner.cls, f"{path}{marks}.")
        else:
            yield path + marks, _many(marks, _word(inner)), words[field.encode_name]


def _many(marks: str, word: str) -> str:
    return {"": word, "[]": f"list of {word}", "{}": f"map of {word}"}.get(marks, word)


def _unwrapped(kind: inspect.Type) -> tuple[str, inspect.Type]:
    """What a field holds, and whether in a list (`[]`) or a map (`{}`)."""
    match kind:
        case inspect.Metadata(type=inner):
            return _unwrapped(inner)
        case inspect.UnionType(types=members):
            return _unwrapped(next(m for m in members if not isinstance(m, inspect.NoneType)))
        case inspect.VarTupleType(item_type=inner):
            return "[]", _unwrapped(inner)[1]
        case inspect.DictType(value_type=inner):
            return "{}", _unwrapped(inner)[1]
        case _:
            return "", kind


_WORDS: Mapping[type, str] = {
    inspect.StrType: "string",
    inspect.IntType: "integer",
    inspect.BoolType: "boolean",
    inspect.RawType: "any JSON",
    inspect.AnyType: "any JSON",
}


def _word(kind: inspect.Type) -> str:
    cls = getattr(kind, "cls", None)
    if isinstance(kind, inspect.CustomType | inspect.StructType) and cls is not None:
        return str(cls.__name__)
    if isinstance(kind, inspect.StrType) and kind.pattern:
        return "time"
    return _WORDS.get(type(kind), type(kind).__name__)


def commands() -> str:
    """The help of every command, as it prints it."""
    from dray.cli.app import COMMANDS, dray

    root = _context(dray, "dray")
    each = [(command, name) for name in COMMANDS if (command := dray.get_command(root, name))]
    helps = [text for command, name in each for text in _helps(command, _context(command, name, root))]
    return _page("Commands", _help(dray, root), *helps)


def _helps(command: click.Command, context: click.Context) -> Iterator[str]:
    """The help of a command and of the commands in it."""
    yield _help(command, context)
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        yield _help(inner, _context(inner, name, context))


def _help(command: click.Command, context: click.Context) -> str:
    return f"## {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```"


def _context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    """A context that does not depend on the terminal."""
    return click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=100,
        max_content_width=100,
        help_option_names=["-h", "--help"],
    )


PAGES: Mapping[str, tuple[str, Callable[[], str]]] = MappingProxyType(
    {
        "commands": ("Commands", commands),
        "lint-rules": ("Rules of `dray lint`", lint_rules),
        "kinds": ("Kinds and their fields", kinds),
        "gates": ("Feature gates", gates),
        "limits": ("Limits", limits),
        "server-limits": ("Limits of the server", server_limits),
        "metrics": ("Metrics", metrics),
        "driver-checks": ("Checks of drivers", driver_checks),
        "differences": ("Differences from Kubernetes", differences),
    }
)
"""Every page: its file, its title, what makes it."""


def index() -> str:
    """The list of the pages."""
    return _page("Reference", "\n".join(f"- [{title}]({name}.md)" for name, (title, _) in PAGES.items()))


def everything() -> dict[str, str]:
    """All pages by file name."""
    return {"index.md": index(), **{f"{name}.md": make() for name, (_, make) in PAGES.items()}}
