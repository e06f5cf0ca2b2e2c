"""Counts the files that somebody reads who follows a backbone through `fit`, or a folder through `load`.

    scripts/walk

One fixed call of each is profiled. A file counts if one of its functions is called; a return is a file that is entered
again from another one after it was left, each pair of files once. Another version is measured with PYTHONPATH=<its src>
before the command.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

import offramp

PACKAGE = str(Path(offramp.__file__ or "").parent)


def walk(call: Callable[[], Any]) -> tuple[list[str], int, Any]:
    """Profile a call; return the files on the way, the number of returns, and the result."""
    visits: list[str] = []
    returns: set[tuple[str, str]] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(PACKAGE) or (visits and visits[-1] == file):
            return
        if file in visits:
            returns.add((visits[-1], file))
        visits.append(file)

    call()  # once before, so that imports are not counted
    sys.setprofile(profile)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    files = list(dict.fromkeys(visits))
    return [str(Path(file).relative_to(PACKAGE)) for file in files], len(returns), result


def main() -> None:
    """Print both walks."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4)]
    backbone: Any = offramp.split(nn.Sequential(nn.Linear(4, 8), *blocks, nn.Linear(8, 3)), torch.randn(2, 4))
    data = [(torch.randn(size, 4), torch.arange(size) % 3) for size in (120, 80)]
    settings = offramp.JointSettings(exits="ladder", classifier_loss="fixed", warmup_epochs=1, epochs=1)
    files, returns, model = walk(lambda: offramp.fit(backbone, *data, settings=settings, anyway=True, progress=False))
    print(f"fit: {len(files)} files, {returns} returns")
    print(*(f"  {file}" for file in files), sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        model.save(path)
        files, returns, _ = walk(lambda: offramp.load(path, backbone=backbone))
    print(f"load: {len(files)} files, {returns} returns")
    print(*(f"  {file}" for file in files), sep="\n")


if __name__ == "__main__":
    main()
