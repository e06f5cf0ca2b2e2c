"""Servers under load: a model with exits, and its full network, behind the same server and scheduler."""
