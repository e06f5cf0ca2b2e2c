"""The comparison of early-exit methods: three tracks, one yardstick, the same tuning for everyone."""
