"""Every figure and table of the paper on one page, from what the benchmark of the paper measured.

Example:
    >>> import tempfile
    >>> from pathlib import Path
    >>> results = parse_results({"tasks": {}, "bars": [{"name": "b", "figure": 1, "at_most": 2, "held": True}]})
    >>> page = write_paper_page(results, Path(tempfile.mkdtemp()) / "paper.html")
    >>> "1 of 1 bars hold" in page.read_text(encoding="utf-8")
    True
"""

from offramp_bench.page.page import write_paper_page
from offramp_bench.page.reading import parse_results, read_results
from offramp_bench.page.results import PaperResults

__all__ = ["PaperResults", "parse_results", "read_results", "write_paper_page"]
