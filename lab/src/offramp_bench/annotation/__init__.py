"""Annotation with an expensive model: calls, guarantees, kills, memory, and the estimated bill."""
