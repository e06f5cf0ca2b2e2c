"""Whether the same work holds on a cluster: speed, lost machines, many rows, faults."""
