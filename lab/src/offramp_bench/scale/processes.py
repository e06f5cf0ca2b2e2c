"""What this process and those that descend from it are doing, by the system's own account."""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Process", "descendants"]


@dataclass(frozen=True)
class Process:
    """A process that lives."""

    number: int
    parent: int
    command: str
    """As it calls itself."""
    cpu_s: float
    """Processor time so far."""


def descendants() -> list[Process]:
    """This process and all that descend from it: other work on this machine is none of ours."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # The name in parentheses may hold anything; what follows it does not.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # gone meanwhile
        cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        found[int(entry.name)] = Process(int(entry.name), int(fields[1]), command, cpu_s)

    def is_ours(number: int) -> bool:
        while number in found and number != os.getpid():
            number = found[number].parent
        return number == os.getpid()

    return [process for number, process in found.items() if is_ours(number)]
