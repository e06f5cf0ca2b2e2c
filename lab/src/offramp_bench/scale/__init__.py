"""Work on a cluster: speed, lost machines, many rows, faults."""
