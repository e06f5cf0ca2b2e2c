"""Serving: requests of many callers before one model."""

from offramp.serve._scheduler import Scheduler

__all__ = ["Scheduler"]
