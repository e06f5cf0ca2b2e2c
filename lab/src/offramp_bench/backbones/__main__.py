"""Fit backbones and write their weights.

    python -m offramp_bench.backbones [NAME ...] [--again]

Backbones with existing weights are skipped, unless --again is set. Progress goes to stderr, one line per epoch, and
the figures go to stdout.
"""

import argparse
import json

from offramp_bench.backbones import BACKBONES
from offramp_bench.backbones.weights import FOLDER
from offramp_bench.bars import say


def main() -> None:
    """Fit the backbones that the command line names."""
    lab_names = [name for name, backbone in BACKBONES.items() if backbone.train is not None]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *lab_names], metavar="NAME", help=", ".join(lab_names))
    parser.add_argument("--again", action="store_true", help="fit those that are there, too")
    arguments = parser.parse_args()
    for name in arguments.names or lab_names:
        train = BACKBONES[name].train
        if (FOLDER / f"{name}.safetensors").exists() and not arguments.again:
            say(f"{name}: there already")
        elif train is not None:
            print(json.dumps({name: train()}), flush=True)


if __name__ == "__main__":
    main()
