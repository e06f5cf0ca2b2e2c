"""Whether the time is really saved: parity, efficiency, and what users would pick instead."""
