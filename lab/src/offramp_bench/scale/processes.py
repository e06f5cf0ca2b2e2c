"""This process and its descendants, as /proc lists them."""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Process", "descendants"]


@dataclass(frozen=True)
class Process:
    """A running process."""

    number: int
    parent: int
    command: str
    """Command line of the process."""
    cpu_s: float
    """Processor time so far."""


def descendants() -> list[Process]:
    """Return this process and all its descendants, without other processes of this machine."""
    processes = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # The name in parentheses may hold anything; what follows it does not.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended just now
        cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        processes[int(entry.name)] = Process(int(entry.name), int(fields[1]), command, cpu_s)

    def is_ours(number: int) -> bool:
        while number in processes and number != os.getpid():
            number = processes[number].parent
        return number == os.getpid()

    return [process for number, process in processes.items() if is_ours(number)]
