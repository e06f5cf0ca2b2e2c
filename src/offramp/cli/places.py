"""Checks of output folders and files, before the long work instead of after it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from offramp.errors import InputError

__all__ = ["check_artifact", "check_writable", "find_address", "find_name", "lock_output"]


def check_writable(folder: Path, option: str) -> None:
    """Refuse a folder that cannot be created or written into, without creating it.

    Args:
        folder: Folder for the output.
        option: Option that names it, for the message.

    Example:
        >>> check_writable(Path("/dev/null/features"), "--store")
        Traceback (most recent call last):
        offramp.errors.InputError: cannot write into /dev/null/features: Not a directory; choose another --store
    """
    created: Sequence[Path] = ()
    try:
        created = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"cannot write into {folder}: {error.strerror}", hint=f"choose another {option}") from error
    finally:
        with suppress(OSError):  # another process may have written there
            for place in created:
                place.rmdir()


def check_artifact(out: Path) -> None:
    """Refuse an `--out` that is an address, that cannot be written, or that is a folder with files of another kind."""
    from offramp.artifact._format import MANIFEST, check_folder, is_artifact_file

    check_folder(out)
    other = out.is_dir() and any(not is_artifact_file(file.name) for file in out.iterdir())
    if out.is_file() or (other and not (out / MANIFEST).exists()):
        raise InputError(f"{out} exists and is no artifact", hint="choose another --out")
    check_writable(out, "--out")


def find_address(artifact: Path) -> str:
    """Return the address of an artifact from the Hub, for other commands and machines; the folder of any other one.

    Args:
        artifact: Folder of the artifact, as `fetch_artifact` returns it.

    Example:
        >>> find_address(Path("cache/models--owner--name/snapshots/" + 20 * "a1"))
        'hf://owner/name@a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1'
        >>> find_address(Path("my-offramp"))
        'my-offramp'
    """
    from offramp.model._hub import HubAddress  # imports torch

    return str(HubAddress.of_snapshot(artifact) or artifact)


def find_name(artifact: Path) -> str:
    """Return the name of an artifact: that of its repository if it is from the Hub, else that of its folder.

    Args:
        artifact: Folder of the artifact, as `fetch_artifact` returns it.

    Example:
        >>> find_name(Path("cache/models--owner--name/snapshots/" + 20 * "a1")), find_name(Path("fitted/my-offramp"))
        ('name', 'my-offramp')
    """
    from offramp.model._hub import HubAddress  # imports torch

    address = HubAddress.of_snapshot(artifact.resolve())
    return artifact.resolve().name if address is None else address.repository.partition("/")[2]


@contextmanager
def lock_output(out: Path) -> Iterator[None]:
    """Lock an `--out` so that no other command writes there; if the process is killed, the lock is free again.

    The lock is the hidden file `.<name>.lock` beside it. It is never deleted: that could let two writers in.

    Args:
        out: The file or folder to be written.

    Raises:
        BusyError: If another process holds it; the message names the process.
        StoreError: If nothing can be written beside it.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, lock_output(Path(folder, "answers.csv")):
        ...     Path(folder, ".answers.csv.lock").exists()
        True
    """
    from offramp._files import hold_lock

    with hold_lock(out.with_name(f".{out.name}.lock"), wait_s=0):
        yield
