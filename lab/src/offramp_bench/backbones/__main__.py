"""Fit backbones and write their weights.

    python -m offramp_bench.backbones [NAME ...] [--again]

Those whose weights are there are passed over, unless --again. A line an epoch on stderr, the figures on stdout.
"""

import argparse
import json

from offramp_bench.backbones import BACKBONES
from offramp_bench.backbones.weights import FOLDER
from offramp_bench.bars import say


def main() -> None:
    """Fit what is asked for."""
    fitted_here = [name for name, backbone in BACKBONES.items() if backbone.train is not None]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *fitted_here], metavar="NAME", help=", ".join(fitted_here))
    parser.add_argument("--again", action="store_true", help="fit those that are there, too")
    arguments = parser.parse_args()
    for name in arguments.names or fitted_here:
        train = BACKBONES[name].train
        if (FOLDER / f"{name}.safetensors").exists() and not arguments.again:
            say(f"{name}: there already")
        elif train is not None:
            print(json.dumps({name: train()}), flush=True)


if __name__ == "__main__":
    main()
