"""Measured time savings: parity with the simulator, efficiency, and a comparison with alternatives."""
