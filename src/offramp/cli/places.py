"""Where results go: refused before the long work, not after it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from offramp.errors import InputError

__all__ = ["check_artifact", "check_writable", "lock_output"]


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
    from offramp.artifact import MANIFEST, is_artifact_file

    other = out.is_dir() and any(not is_artifact_file(file.name) for file in out.iterdir())
    if out.is_file() or (other and not (out / MANIFEST).exists()):
        raise InputError(f"{out} is there and is no artifact; choose another --out")
    check_writable(out, "--out")


@contextmanager
def lock_output(out: Path) -> Iterator[None]:
    """Hold an `--out` so that no other command writes there; a kill releases it.

    The lock is the hidden file `.<name>.lock` beside it, which stays: to delete it could let two writers in.

    Args:
        out: The file or folder that is going to be written.

    Raises:
        BusyError: If another process holds it; the message names the process.
        StoreError: If nothing can be written beside it.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, lock_output(Path(folder, "answers.csv")):
        ...     Path(folder, ".answers.csv.lock").exists()
        True
    """
    from offramp.files import hold_lock

    with hold_lock(out.with_name(f".{out.name}.lock"), wait_s=0):
        yield
