"""Hooks of the documentation site: files outside of docs/, help texts, docstrings, and formulas without a script."""

import contextlib
import html
import importlib
import io
import os
import re
import sys
from pathlib import Path
from typing import Any

from griffe import Extension, Object
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]

LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")

INCLUDE = re.compile(r"<!-- include (\S+) -->\n")
"""The place where a page shows a document that stands outside of docs/, without its title."""

HELP = "<!-- help of every command -->\n"
"""The place of the help texts."""

GUIDE = re.compile(r"\bdocs/([\w/-]+\.md)")
"""A page that a docstring names."""

FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>', flags=re.DOTALL)


class Docstrings(Extension):
    """Shows examples as code, and links the pages that docstrings name."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change a docstring before it is parsed."""
        if obj.docstring is not None:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = GUIDE.sub(r"[docs/\1](../../\1)", text)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in documents from outside, and lead links that leave docs/ to copies of the files."""
    here = Path(config.docs_dir, page.file.src_uri).parent
    markdown = INCLUDE.sub(lambda found: _read_document(here / found[1], here), markdown)
    if HELP in markdown:
        markdown = markdown.replace(HELP, _read_help())

    def replace(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(here / found[1]))
        if "://" in found[1] or target.is_relative_to(ROOT / "docs") or not target.is_relative_to(ROOT):
            return found[0]
        if not target.is_file():
            raise PluginError(f"{page.file.src_uri}: there is no file {found[1]}")
        uri = f"files/{target.relative_to(ROOT)}.txt"  # .txt: browsers show it
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(target)))
        return f"]({os.path.relpath(uri, Path(page.file.src_uri).parent)})"

    return LINK.sub(replace, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Turn formulas into MathML."""
    return FORMULA.sub(
        lambda found: convert(html.unescape(found[3]).strip(), display="block" if found[2] == "[" else "inline"),
        content,
    )


def _read_document(file: Path, here: Path) -> str:
    """Return a document without its title, with links as they are from another folder."""
    _, _, text = file.read_text(encoding="utf-8").partition("\n")

    def move(found: re.Match[str]) -> str:
        if "://" in found[1]:
            return found[0]
        return f"]({os.path.relpath(file.parent / found[1], here)}{found[2] or ''})"

    return LINK.sub(move, text)


def _read_help() -> str:
    """Return the help of every command under a heading; that needs typer, but not torch."""
    sys.path.insert(0, str(ROOT / "src"))
    cli = importlib.import_module("offramp.cli.main")
    sections = []
    for command in cli.COMMANDS:
        name = command.__name__
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            cli.main([name, "--help"])
        sections.append(f"## offramp {name}\n\n```text\n{printed.getvalue().strip()}\n```\n")
    return "\n".join(sections)
