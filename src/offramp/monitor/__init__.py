"""Knowing when the world has changed: traffic compared with a reference, without labels.

Every test is a game that cannot be won while nothing has changed: its fortune is evidence, and may be looked at after
every sample. [Vovk2022] is Vovk, Gammerman, Shafer: Algorithmic Learning in a Random World, second edition, Springer
2022.
"""

from offramp.monitor.monitor import FEWEST, Action, Evidence, Monitor, Verdict
from offramp.monitor.shadow import full_labels
from offramp.monitor.summary import Summary, summarise
from offramp.monitor.traffic import Traffic

__all__ = [
    "FEWEST",
    "Action",
    "Evidence",
    "Monitor",
    "Summary",
    "Traffic",
    "Verdict",
    "full_labels",
    "summarise",
]
