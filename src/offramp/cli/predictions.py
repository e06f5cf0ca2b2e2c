"""Files of answers, written batch by batch and continued after an interruption."""

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from offramp._files import sync_folder, write_atomically
from offramp.errors import InputError
from offramp.model._answer import Answer
from offramp.monitor import Traffic

__all__ = ["COLUMNS", "Predictions", "read_traffic"]

COLUMNS = ("input", "label", "confidence", "exit", "cost", "point", "set")
"""Columns of a CSV file; a JSON line has the same fields and `probabilities`. If some inputs run through the full
network as well, its label, `full`, comes before the set, and is empty for the others."""


NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""Flag that refuses symbolic links; Windows has none."""


class Predictions:
    """A file of answers, one per line, under another name until it is complete.

    One process at a time may write it: lock it with `lock_output`. Symbolic links are never followed: a link at `file`
    is replaced at the end, links at the working files at once.

    Args:
        file: A name that ends with .csv or .jsonl; an existing file is replaced at the end.
        key: Everything the answers depend on; a partial file with another key is not continued.
        point: Identifier of the operating point; answers at different points are not comparable.
        batch_size: Answers per batch. A partial batch is computed again, as rounding depends on the batch.
        classes: Names of the classes; their numbers if empty.
        miscoverage: Miscoverage of the prediction sets.
        shadowed: True if some inputs run through the full network as well.

    Attributes:
        done: Number of answers written.
        costs_before: Costs of the answers that an earlier run wrote.
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
            raise InputError("--out", expected="a name that ends with .csv or .jsonl", got=f"'{file.name}'")
        if file.is_dir():
            raise InputError(f"{file} is a folder", hint="choose another --out")
        key = f"{key} {batch_size}"
        self._file, self._point, self._classes, self._miscoverage = file, point, classes, miscoverage
        self._columns = (*COLUMNS[:-1], *(("full",) if shadowed else ()), COLUMNS[-1])
        self._part, self._key = file.with_name(f"{file.name}.part"), file.with_name(f"{file.name}.part.key")
        self.costs_before: list[float] = []
        try:
            lines: list[str] = []
            if _read_own(self._key) == key.encode():
                lines, costs = self._complete_lines()
                self.costs_before = costs[: len(costs) - len(costs) % batch_size]
            else:
                self._key.unlink(missing_ok=True)  # first: a partial file without its key is never continued
            self.done, self._spent = len(self.costs_before), sum(self.costs_before)
            file.parent.mkdir(parents=True, exist_ok=True)
            header = "" if file.suffix == ".jsonl" else _csv_line(self._columns)
            with write_atomically(self._part) as temporary:
                temporary.write_text(header + "".join(lines[: self.done]), "utf-8", newline="")
            with write_atomically(self._key) as temporary:
                temporary.write_text(key, "utf-8")
        except OSError as error:
            raise InputError(f"cannot write {file}: {error.strerror}", hint="choose another --out") from error

    def _complete_lines(self) -> tuple[list[str], list[float]]:
        """Return the complete answers of a partial file, and their costs."""
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
            inputs: Identifiers of the inputs: file names or row numbers.
            answer: The answers.
            full: The full network's classes, by row of the batch, of inputs that ran through it.

        Returns:
            The relative cost of each answer, as written.
        """
        lines, costs = [], []
        for row in range(len(answer.labels)):
            chosen = None  # the model of an annotation job has no prediction sets
            if answer.prediction_sets:
                chosen = answer.prediction_sets[self._miscoverage][row].nonzero().flatten().tolist()
            content: dict[str, Any] = {
                "input": inputs[row],
                "label": self._name(int(answer.labels[row])),
                "confidence": round(float(answer.probabilities[row].max()), 6),
                "exit": int(answer.exits[row]),
                "cost": round(float(answer.relative_cost[row]), 6),
                "point": self._point,
                "full": self._name(full[row]) if full is not None and row in full else None,
                "set": None if chosen is None else [self._name(label) for label in chosen],
            }
            content = {name: content[name] for name in self._columns}
            if self._file.suffix == ".jsonl":
                content["probabilities"] = [round(share, 6) for share in answer.probabilities[row].tolist()]
                lines.append(json.dumps(content, ensure_ascii=False) + "\n")
            else:
                names = json.dumps(content["set"], ensure_ascii=False)
                lines.append(_csv_line([*(content[name] for name in self._columns[:-1]), names]))
            costs.append(content["cost"])
        try:
            # Without O_CREAT: a file deleted meanwhile must not be started again in the middle.
            descriptor = os.open(self._part, os.O_WRONLY | os.O_APPEND | NO_FOLLOW)
            with open(descriptor, "a", encoding="utf-8", newline="") as file:
                file.write("".join(lines))
        except OSError as error:
            raise InputError(
                f"cannot continue writing {self._part}: {error.strerror}",
                hint="make room, then run the same command again",
            ) from error
        self.done += len(lines)
        self._spent += sum(costs)
        return costs

    def finish(self) -> dict[str, Any]:
        """Give the file its final name, and return the number of rows and their mean cost."""
        with open(os.open(self._part, os.O_RDWR | NO_FOLLOW), "r+b") as file:
            os.fsync(file.fileno())
        self._part.replace(self._file)
        sync_folder(self._file.parent)
        self._key.unlink(missing_ok=True)
        return {"rows": self.done, "cost": self._spent / max(1, self.done)}

    def _name(self, label: int) -> str | int:
        return self._classes[label] if self._classes else label


def _read_own(path: Path) -> bytes:
    """Read a working file; empty if there is none or it is a symbolic link."""
    return path.read_bytes() if path.exists() and not path.is_symlink() else b""


def _csv_line(values: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def read_traffic(file: Path) -> tuple[Traffic, set[str]]:
    """Read exits, confidences and disagreement with the full network from a file of answers.

    Args:
        file: A complete file of `Predictions`; only the columns exit, confidence, label and full are used.

    Returns:
        The traffic, and the operating points in the file, if it names any.
    """
    points: set[str] = set()
    columns: tuple[list[float], ...] = ([], [], [])
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise InputError(
            f"cannot read {file}: {error.strerror}", hint="give a .csv or .jsonl file that offramp predict wrote"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not a text file", hint="give a file that offramp predict wrote") from error
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
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            expected=f"answers with exit, confidence and label in {file}",
            got=f"{reason} in row {len(columns[0])}",
            hint="give a file that offramp predict wrote, .csv or .jsonl",
        ) from error
    try:
        return Traffic(*columns), points
    except InputError as error:
        raise InputError(str(file), expected=error.expected, got=error.got, hint=error.hint) from error
