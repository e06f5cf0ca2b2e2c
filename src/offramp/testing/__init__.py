"""Checks for backbones of your own, and a local server that stands in for a language model."""

from offramp.testing._backbone import check_backbone
from offramp.testing._llm_server import serve_llm

__all__ = ["check_backbone", "serve_llm"]
