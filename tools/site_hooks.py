"""mkdocs hooks of the documentation site: pages for the repository files that the documentation links to.

Theory of operation: pages link to files beside `docs/` (`../examples/README.md`) by relative paths, so that
the links work on a code host and in a clone. For the site, `on_files` follows such links from page to page
and adds every target as a generated page under `repository/`: Markdown as it is, a directory as its README
or a list of its files, any other file as one code block. `on_page_markdown` then points the links at these
pages. A target that does not exist is left alone, so that strict mode reports it.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs"
PREFIX = "repository"

FENCED = re.compile(r"^( *)(`{3,})[^\n]*\n.*?^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<open>\[[^\]]*\]\()(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?P<close>\))")
LANGUAGES = {".py": "python", ".sh": "sh", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json"}
MARKDOWN = ".md"


def on_files(files: Any, config: Any) -> Any:
    """Add a page for every file of the repository that a page links to."""
    from mkdocs.structure.files import File

    for path in find_linked_files():
        files.append(File.generated(config, to_source_uri(path), content=render_page(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to files of the repository at their pages."""
    return rewrite_links(markdown, to_repository_path(page.file.src_uri))


def find_linked_files() -> list[str]:
    """Every path outside `docs` that a page of the site links to, from the root of the repository."""
    waiting = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / DOCS).rglob(f"*{MARKDOWN}"))]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        for target in iter_targets(render_page(path), path):
            if target not in seen and is_page_source(target):
                seen.add(target)
                waiting.append(target)
    return sorted(path for path in seen if not is_document(path))


def is_document(path: str) -> bool:
    """Whether mkdocs itself finds the file."""
    return PurePosixPath(path).parts[:1] == (DOCS,)


def is_page_source(path: str) -> bool:
    """Whether the path is a file or a directory of the repository that needs a page of its own."""
    return not path.startswith("..") and not is_document(path) and (ROOT / path).exists()


def iter_targets(markdown: str, path: str) -> Iterator[str]:
    """Targets of the relative links of a page, from the root of the repository."""
    for found in LINK.finditer(FENCED.sub("", markdown)):
        if "://" not in found["target"]:
            yield resolve_link(found["target"], path)


def resolve_link(target: str, path: str) -> str:
    """Where a link of the page at `path` leads; a directory with a README means the README."""
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    readme = posixpath.join(place, f"README{MARKDOWN}")
    return readme if (ROOT / readme).is_file() else place


def render_page(path: str) -> str:
    """The Markdown of a file or directory of the repository."""
    source = ROOT / path
    if source.suffix == MARKDOWN:
        return source.read_text("utf-8")
    if source.is_dir():
        names = [f"{name}/" if (source / name).is_dir() else name for name in sorted(os.listdir(source))]
        return f"# {path}\n\n" + "".join(f"- `{name}`\n" for name in names if not name.startswith(("_", ".")))
    fence = "~" * 8
    language = LANGUAGES.get(source.suffix, "text")
    return f"# {path}\n\n{fence}{language}\n{source.read_text('utf-8')}{fence}\n"


def to_source_uri(path: str) -> str:
    """The name under which mkdocs has the page of a file of the repository."""
    if is_document(path):
        return posixpath.relpath(path, DOCS)
    if path.endswith(MARKDOWN):
        return f"{PREFIX}/{path}"
    return f"{PREFIX}/{path}{MARKDOWN}"


def to_repository_path(source_uri: str) -> str:
    """The reverse of `to_source_uri`, for pages of Markdown files."""
    if source_uri.startswith(f"{PREFIX}/"):
        path = source_uri.removeprefix(f"{PREFIX}/")
        return path if (ROOT / path).exists() else path.removesuffix(MARKDOWN)
    return f"{DOCS}/{source_uri}"


def rewrite_links(markdown: str, path: str) -> str:
    """The page at `path` with links that lead to the pages of the site."""
    here = posixpath.dirname(to_source_uri(path))

    def rewrite(found: re.Match[str]) -> str:
        target = found["target"]
        if "://" in target:
            return found[0]
        place = resolve_link(target, path)
        has_page = is_page_source(place) or (is_document(place) and not is_document(path))
        if not has_page:
            return found[0]
        uri = posixpath.relpath(to_source_uri(place), here)
        return f"{found['open']}{uri}{found['anchor'] or ''}{found['close']}"

    return replace_outside_fences(LINK, rewrite, markdown)


def replace_outside_fences(pattern: re.Pattern[str], replace: Any, markdown: str) -> str:
    """`pattern.sub` on everything but fenced blocks."""
    parts: list[str] = []
    at = 0
    for block in FENCED.finditer(markdown):
        parts += [pattern.sub(replace, markdown[at : block.start()]), block[0]]
        at = block.end()
    return "".join([*parts, pattern.sub(replace, markdown[at:])])
