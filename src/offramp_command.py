"""What the command `offramp` starts: apart from the package, so that Ctrl-C while torch is imported is caught too."""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command; 130 when interrupted."""
    try:
        from offramp.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        return 130
