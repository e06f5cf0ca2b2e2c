"""Parts of pages that are made from results: they stand between two marks."""

__all__ = ["replace_marked"]


def replace_marked(page: str, name: str, content: str) -> str:
    """Return a page with other content between the marks of a name.

    Args:
        page: The page.
        name: Name of the marks.
        content: The new content.

    Example:
        >>> print(replace_marked("a\\n<!-- b -->\\nold\\n<!-- /b -->\\nc", "b", "new"))
        a
        <!-- b -->
        new
        <!-- /b -->
        c
    """
    opens, closes = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = page.split(opens)
    _, after = rest.split(closes)
    return f"{before}{opens}\n{content}\n{closes}{after}"
