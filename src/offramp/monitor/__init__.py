"""Monitoring: sequential tests of traffic against a reference, without labels.

Every test bets against "nothing has changed"; its wealth is the evidence of a change, valid after every sample.
[Vovk2022] is Vovk, Gammerman, Shafer: Algorithmic Learning in a Random World, second edition, Springer
2022.
"""

from offramp.monitor._monitor import Monitor
from offramp.monitor._shadow import full_labels
from offramp.monitor._traffic import Traffic

__all__ = ["Monitor", "Traffic", "full_labels"]
