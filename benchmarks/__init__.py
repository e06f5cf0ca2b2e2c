"""The evidence: a config goes in, results come out as JSON."""
