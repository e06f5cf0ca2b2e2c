"""A job over 10,000 inputs, killed ten times while one request in ten fails: no answer is lost or bought twice."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import offramp
from offramp.annotation import Annotation
from offramp.errors import CallError
from offramp.preprocessing._row_hashes import hash_rows
from offramp.testing import serve_llm
from offramp.testing._llm_server import LLMServer
from offramp_bench.annotation.rows import load_rows
from offramp_bench.bars import Bar, say

__all__ = ["killed"]

INPUTS, KILLS = 10_000, 10
"""Inputs of the job, and kills of its process."""

FAILURES = {"rate_limit": 0.02, "server_error": 0.02, "reset": 0.02, "malformed": 0.02, "slow": 0.02}
"""One request in ten fails."""

PRICE = 0.001
"""Price of a reply; malformed ones cost as much."""

IN_FLIGHT = 16
"""Largest number of concurrent requests."""


def killed() -> tuple[dict[str, Any], list[Bar]]:
    """Run the job, kill and restart it at random moments until it ends; then run it again with a low spending cap."""
    rows = load_rows("clinc150")
    texts = list(dict.fromkeys(rows.texts))[:INPUTS]
    place = {text: number for number, text in enumerate(rows.texts)}
    answers = {text: str(rows.answers[place[text]]) for text in texts}
    with TemporaryDirectory() as folder, serve_llm(answers.__getitem__, failures=FAILURES, slow_s=3.0) as server:
        path = Path(folder)
        (path / "texts.json").write_text(json.dumps([texts, server.base_url, rows.num_classes]))
        np.save(path / "embeddings.npy", rows.embeddings[[place[text] for text in texts]])
        figures = _kill_and_restart(path, server, texts, answers)
        figures["over_cap"] = _stop_at_cap(path, server)
    return figures, [
        Bar("inputs without their answer", figures["wrong"], 0),
        Bar("inputs asked again after their answer was kept", figures["asked_again"], 0),
        Bar("kills missed", KILLS - figures["kills"], 0),
        Bar("spent above the cap", figures["spent"] - figures["cap"], 0),
        Bar("low cap: spent above it, in replies", figures["over_cap"], IN_FLIGHT),
    ]


def _kill_and_restart(path: Path, server: LLMServer, texts: Sequence[str], answers: dict[str, str]) -> dict[str, Any]:
    draw = random.Random(0)
    moments = sorted(draw.sample(range(100, INPUTS - 100), KILLS))
    cap = 1.1 * PRICE * INPUTS
    asked_again = kills = 0
    for moment in [*moments, None]:
        process = subprocess.Popen([sys.executable, "-m", __name__, str(path), str(cap)], env=_environment())
        kept_texts = _read_kept_texts(path, texts)
        first_request = len(server.asked)
        while process.poll() is None and (moment is None or len(server.answered) < moment):
            time.sleep(0.02)
        if moment is not None and process.poll() is None:
            time.sleep(draw.random() * 0.2)
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        time.sleep(0.3)  # requests that it sent are still on their way
        asked_again += sum(text in kept_texts for text in server.asked[first_request:])
        say(f"killed after {len(server.answered):,} answers, {len(server.asked):,} requests")
    result = json.loads((path / "result.json").read_text())
    wrong = sum(name != answers[text] for text, name in zip(texts, result["names"], strict=True))
    return {
        "inputs": len(texts),
        "requests": len(server.asked),
        "kills": kills,
        "wrong": wrong,
        "asked_again": asked_again,
        "spent": result["spent"],
        "cap": cap,
    }


def _stop_at_cap(path: Path, server: LLMServer) -> float:
    """Return the number of replies by which a job exceeds a spending cap of a tenth of the bill."""
    cap = 0.1 * PRICE * INPUTS
    job = run_job(path, cap, store=path / "capped")
    assert job is None, "the job did not stop at its cap"
    with closing(sqlite3.connect(path / "capped" / "answers.sqlite")) as file:
        ((spent,),) = file.execute("SELECT spent FROM usage").fetchall()
    return float((spent - cap) / PRICE)


def _read_kept_texts(path: Path, texts: Sequence[str]) -> set[str]:
    """Return the texts whose answers are in the store."""
    store = path / "job" / "answers.sqlite"
    if not store.exists():
        return set()
    with closing(sqlite3.connect(store)) as file:
        kept_keys = {key for (key,) in file.execute("SELECT input FROM answers")}
    keys = hash_rows(np.array(texts, dtype=object)).tolist()
    return {text for text, key in zip(texts, keys, strict=True) if key in kept_keys}


def _environment() -> dict[str, str]:
    return {**os.environ, "OPENAI_API_KEY": "none", "OMP_NUM_THREADS": "1"}


def run_job(path: Path, cap: float, *, store: Path) -> Annotation | None:
    """Annotate all inputs through the server, and return the annotation; None if the cap was reached.

    Args:
        path: Folder of the inputs.
        cap: Spending cap.
        store: Folder for answers.
    """
    texts, base_url, num_classes = json.loads((path / "texts.json").read_text())
    os.environ.setdefault("OPENAI_API_KEY", "none")
    llm = offramp.llm(
        "tuned",
        [str(number) for number in range(num_classes)],
        base_url=base_url,
        price={"per_call": PRICE, "currency": "EUR"},
        field="text",
        concurrency=IN_FLIGHT,
        timeout_s=1.0,
        attempts=8,
    )
    members = offramp.cascade(offramp.encoder(field="embedding"), llm)
    inputs = {"embedding": np.load(path / "embeddings.npy"), "text": np.array(texts, dtype=object)}
    try:
        # Such a small drop cannot be guaranteed, so all inputs go to the last member.
        return offramp.annotate(
            inputs,
            members,
            label_budget=100,
            max_drop=1e-4,
            max_spend=cap,
            anyway=True,
            store=store,
            on_failure="later",
            progress=False,
        )
    except CallError:
        return None


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    annotation = run_job(folder, float(sys.argv[2]), store=folder / "job")
    if annotation is not None:
        (folder / "result.json").write_text(json.dumps({"names": annotation.names, "spent": annotation.bill.spent}))
