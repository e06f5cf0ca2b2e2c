"""Answers as a file, written as they come, gone on with where writing stopped."""

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from offramp.errors import InputError
from offramp.files import replacing, sync_folder
from offramp.monitor import Traffic
from offramp.network import Answer

__all__ = ["COLUMNS", "Predictions", "read_traffic"]

COLUMNS = ("input", "label", "confidence", "exit", "cost", "point", "set")
"""Of a CSV file. A JSON line has the same fields, and `probabilities`. Where some inputs are run to full depth as well,
`full`, the full network's label, comes before the set; empty for all others."""


NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""Flag by which a symbolic link is refused; Windows has none."""


class Predictions:
    """A file of answers, one a line; under another name until it is whole.

    One process at a time may write it: hold it with `lock_output`. A symbolic link is never followed: one at `file` is
    replaced at the end, those at the working files at once.

    Args:
        file: Ends with .csv or .jsonl. A file that is there is replaced at the end.
        key: What the answers depend on; a part left by a run with another key is not gone on with.
        point: What to know the operating point by: answers at another one are not to be compared with these.
        batch_size: Answers that come at a time. A part of a batch is made again: rounding depends on who shares it.
        classes: Names of the classes; their numbers if empty.
        miscoverage: Of the prediction sets.
        shadowed: Whether some inputs are run to full depth as well.

    Attributes:
        done: How many answers there are.
        costs_before: What those cost that were there before.
    """

    def __init__(
        self,
        file: Path,
        key: str,
        *,
        point: str,
        batch_size: int,
        classes: Sequence[str],
        miscoverage: float,
        shadowed: bool = False,
    ) -> None:
        if file.suffix not in (".csv", ".jsonl"):
            raise InputError(f"expected --out to end with .csv or .jsonl, got '{file.name}'")
        if file.is_dir():
            raise InputError(f"{file} is a folder; choose another --out")
        key = f"{key} {batch_size}"
        self._file, self._point, self._classes, self._miscoverage = file, point, classes, miscoverage
        self._columns = (*COLUMNS[:-1], *(("full",) if shadowed else ()), COLUMNS[-1])
        self._part, self._key = file.with_name(f"{file.name}.part"), file.with_name(f"{file.name}.part.key")
        self.costs_before: list[float] = []
        try:
            lines: list[str] = []
            if _read_own(self._key) == key.encode():
                lines, costs = self._whole_lines()
                self.costs_before = costs[: len(costs) - len(costs) % batch_size]
            else:
                self._key.unlink(missing_ok=True)  # first: without it, a part that is being written is nobody's
            self.done, self._spent = len(self.costs_before), sum(self.costs_before)
            file.parent.mkdir(parents=True, exist_ok=True)
            header = "" if file.suffix == ".jsonl" else _csv_line(self._columns)
            with replacing(self._part) as temporary:
                temporary.write_text(header + "".join(lines[: self.done]), "utf-8", newline="")
            with replacing(self._key) as temporary:
                temporary.write_text(key, "utf-8")
        except OSError as error:
            raise InputError(f"cannot write {file}: {error.strerror}; choose another --out") from error

    def _whole_lines(self) -> tuple[list[str], list[float]]:
        """The answers that were written, and what they cost; not one that was being written, nor what follows it."""
        text = _read_own(self._part).decode("utf-8", "replace")
        lines, costs = [], []
        try:
            if self._file.suffix == ".jsonl":
                for line in text.split("\n"):
                    costs.append(float(json.loads(line)["cost"]))
                    lines.append(line + "\n")
            else:  # not line by line: a class may have a line break in its name
                for row in csv.DictReader(io.StringIO(text, newline="")):
                    json.loads(row["set"])  # the last of the columns
                    costs.append(float(row["cost"]))
                    lines.append(_csv_line([row[name] for name in self._columns]))
        except (csv.Error, LookupError, TypeError, ValueError):
            pass
        return lines, costs

    def add(self, inputs: Sequence[str], answer: Answer, full: Mapping[int, int] | None = None) -> list[float]:
        """Write the answers of a batch.

        Args:
            inputs: What to know its inputs by: the file, or the row.
            answer: The answers.
            full: The full network's classes of those rows of the batch that were run to full depth.

        Returns:
            What each has cost, as written.
        """
        lines, costs = [], []
        for row in range(len(answer.labels)):
            chosen = answer.prediction_sets[self._miscoverage][row].nonzero().flatten().tolist()
            content: dict[str, Any] = {
                "input": inputs[row],
                "label": self._name(int(answer.labels[row])),
                "confidence": round(float(answer.probabilities[row].max()), 6),
                "exit": int(answer.exits[row]),
                "cost": round(float(answer.relative_cost[row]), 6),
                "point": self._point,
                "full": self._name(full[row]) if full is not None and row in full else None,
                "set": [self._name(label) for label in chosen],
            }
            content = {name: content[name] for name in self._columns}
            if self._file.suffix == ".jsonl":
                content["probabilities"] = [round(one, 6) for one in answer.probabilities[row].tolist()]
                lines.append(json.dumps(content, ensure_ascii=False) + "\n")
            else:
                listed = json.dumps(content["set"], ensure_ascii=False)
                lines.append(_csv_line([*(content[name] for name in self._columns[:-1]), listed]))
            costs.append(content["cost"])
        try:
            # Without O_CREAT: a part that somebody has taken away would begin in the middle.
            descriptor = os.open(self._part, os.O_WRONLY | os.O_APPEND | NO_FOLLOW)
            with open(descriptor, "a", encoding="utf-8", newline="") as file:
                file.write("".join(lines))
        except OSError as error:
            raise InputError(
                f"cannot go on writing {self._part}: {error.strerror}; make room, then run the same command again"
            ) from error
        self.done += len(lines)
        self._spent += sum(costs)
        return costs

    def finish(self) -> dict[str, Any]:
        """Give the file its name."""
        with open(os.open(self._part, os.O_RDWR | NO_FOLLOW), "r+b") as file:
            os.fsync(file.fileno())
        self._part.replace(self._file)
        sync_folder(self._file.parent)
        self._key.unlink(missing_ok=True)
        return {"rows": self.done, "cost": self._spent / max(1, self.done)}

    def _name(self, label: int) -> str | int:
        return self._classes[label] if self._classes else label


def _read_own(path: Path) -> bytes:
    """Read a working file; nothing where there is none, or a symbolic link."""
    return path.read_bytes() if path.exists() and not path.is_symlink() else b""


def _csv_line(values: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def read_traffic(file: Path) -> tuple[Traffic, set[str]]:
    """What a file of answers says of where inputs left, how sure, and whether the full network agrees.

    Args:
        file: A whole file of `Predictions`; other columns than exit, confidence, label and full are not needed.

    Returns:
        The traffic, and the operating points it was answered at: none, where the file does not say.
    """
    points: set[str] = set()
    columns: tuple[list[float], ...] = ([], [], [])
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise InputError(
            f"cannot read {file}: {error.strerror}; give a .csv or .jsonl file that offramp predict wrote"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not a text; give a file that offramp predict wrote") from error
    rows: Iterator[dict[str, Any]]
    if file.suffix == ".jsonl":
        rows = (json.loads(line) for line in text.split("\n") if line)  # not splitlines: a name may have other breaks
    else:
        rows = csv.DictReader(io.StringIO(text, newline=""))
    try:
        for content in rows:
            full, point = content.get("full"), content.get("point")
            points |= {str(point)} if point else set()
            differs = math.nan if full in (None, "") else float(str(full) != str(content["label"]))
            values = (float(content["exit"]), float(content["confidence"]), differs)
            for column, value in zip(columns, values, strict=True):
                column.append(value)
    except (AttributeError, LookupError, TypeError, ValueError, csv.Error) as error:
        told = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"expected answers with exit, confidence and label in {file}, got {told} in row {len(columns[0])}; give a "
            "file that offramp predict wrote, .csv or .jsonl"
        ) from error
    try:
        return Traffic(*columns), points
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
