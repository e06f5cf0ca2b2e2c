"""One page about the comparison of early-exit methods: three tracks, all figures, and the claims of the paper.

Example:
    >>> import tempfile
    >>> from pathlib import Path
    >>> page = write_page(Results((), None), Path(tempfile.mkdtemp()) / "page.html")
    >>> "not judged yet" in page.read_text(encoding="utf-8")
    True
"""

from offramp_bench.page.page import write_page
from offramp_bench.page.reading import read_results
from offramp_bench.page.results import Results

__all__ = ["Results", "read_results", "write_page"]
