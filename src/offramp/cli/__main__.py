"""`python -m offramp.cli`: the same as `offramp`."""

import sys

from offramp.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
