"""Where results go: refused before the long work, not after it."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from offramp.errors import InputError

__all__ = ["check_artifact", "check_writable"]


def check_writable(folder: Path, option: str) -> None:
    """Refuse a folder that cannot be made or written into; it is not made yet.

    Args:
        folder: Where files are going to be.
        option: What asked for it, for the message.

    Example:
        >>> check_writable(Path("/dev/null/features"), "--store")
        Traceback (most recent call last):
        offramp.errors.InputError: cannot write into /dev/null/features: Not a directory; choose another --store
    """
    made: Sequence[Path] = ()
    try:
        made = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"cannot write into {folder}: {error.strerror}; choose another {option}") from error
    finally:
        with suppress(OSError):  # somebody else may have put something there
            for place in made:
                place.rmdir()


def check_artifact(out: Path) -> None:
    """Refuse an `--out` for an artifact that cannot be written, or is a folder of other things.

    Args:
        out: Where the artifact is going to be.
    """
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not (out / "manifest.json").exists()):
        raise InputError(f"{out} is there and is no artifact; choose another --out")
    check_writable(out, "--out")
