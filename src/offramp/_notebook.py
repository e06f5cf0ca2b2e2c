"""Output in notebooks: tables as HTML, and lines that change in place. IPython is used where it already runs."""

import sys
from collections.abc import Callable, Iterable, Sequence
from html import escape

__all__ = ["html_table", "show_in_notebook"]


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()) -> str:
    """Write a table with a title above and notes below as HTML.

    Args:
        title: Plain text, as all that follows.
        columns: Headers.
        rows: Cells, as many per row as there are columns.
        notes: Paragraphs.

    Example:
        >>> html_table("Costs", ["exit", "cost"], [["<1>", "0.5"]])
        '<p>Costs</p><table><tr><th>exit</th><th>cost</th></tr><tr><td>&lt;1&gt;</td><td>0.5</td></tr></table>'
    """
    header = _row("th", columns)
    body = "".join(_row("td", row) for row in rows)
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<p>{escape(title)}</p><table>{header}{body}</table>{below}"


def _row(cell: str, texts: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{cell}>{escape(text)}</{cell}>" for text in texts) + "</tr>"


def show_in_notebook(html: str, text: str) -> Callable[[str, str], object] | None:
    """Show something below the running cell, if this process runs a notebook.

    Args:
        html: HTML for the browser.
        text: The same as plain text, for programs that show no HTML.

    Returns:
        A function that shows other HTML and text in its place; None outside notebooks.
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if ipython is None or getattr(shell, "kernel", None) is None:  # IPython in a terminal has no kernel
        return None
    handle = ipython.display.display(_formats(html, text), raw=True, display_id=True)
    return lambda html, text: handle.update(_formats(html, text), raw=True)


def _formats(html: str, text: str) -> dict[str, str]:
    return {"text/html": html, "text/plain": text}
