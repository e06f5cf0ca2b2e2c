"""Models in repositories of the Hugging Face Hub. The only file that talks to it, through the extra `hub`."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from offramp.artifact._format import LOCK, MANIFEST, is_artifact_file, list_files
from offramp.artifact._network import factory_for
from offramp.backbone import Factory
from offramp.errors import ArtifactError, InputError, MissingExtraError
from offramp.model._card import write_card
from offramp.model._saving import save

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = ["HubAddress", "download", "is_hub_address", "push"]

LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
"""Hint where a token may be missing."""

_FILE_ERRORS = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EISDIR,
        errno.EMFILE,
        errno.ENAMETOOLONG,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
"""Numbers of errors of files on this machine, not of connections."""

_PROGRAM_ERRORS = (AssertionError, AttributeError, ImportError, MemoryError, NameError, NotImplementedError, TypeError)
"""Errors of the program or of this machine, not of the Hub."""

_COMMIT = re.compile(r"[0-9a-f]{40}")
_PART = r"[A-Za-z0-9](?:[\w.-]{0,94}[A-Za-z0-9])?"
_REPOSITORY = re.compile(rf"{_PART}/{_PART}", re.ASCII)
_REVISION = re.compile(r"[\w.][\w./-]{0,249}", re.ASCII)
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")


@dataclass(frozen=True)
class HubAddress:
    """A repository of models, and one of its revisions.

    Example:
        >>> HubAddress.parse("hf://owner/name@v1")
        HubAddress(repository='owner/name', revision='v1')
        >>> print(HubAddress("owner/name"))
        hf://owner/name
    """

    repository: str
    """Owner and name, with a slash between them."""
    revision: str | None = None
    """A branch, a tag or a commit; the branch main if left out."""

    def __post_init__(self) -> None:
        if not _REPOSITORY.fullmatch(self.repository) or ".." in self.repository or "--" in self.repository:
            raise InputError(
                "repository", expected="owner/name, as in the address of its page", got=f"'{self.repository}'"
            )
        if self.revision is not None and (not _REVISION.fullmatch(self.revision) or ".." in self.revision):
            raise InputError("revision", expected="a branch, a tag or a commit", got=f"'{self.revision}'")

    @classmethod
    def parse(cls, address: str) -> "HubAddress":
        """Return the parts of an address such as `hf://owner/name` or `hf://owner/name@revision`."""
        repository, at, revision = re.sub("^hf:/{1,2}", "", address).partition("@")
        try:
            return cls(repository, revision if at else None)
        except InputError as error:
            raise InputError(
                "the address of a model on the Hugging Face Hub",
                expected="hf://owner/name or hf://owner/name@revision",
                got=f"'{address}'",
            ) from error

    @classmethod
    def of_snapshot(cls, folder: str | Path) -> "HubAddress | None":
        """Return the repository and the commit of a folder in the cache of huggingface_hub; None for other folders.

        Example:
            >>> print(HubAddress.of_snapshot("cache/models--owner--name/snapshots/" + 20 * "a1"))
            hf://owner/name@a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1
            >>> HubAddress.of_snapshot("artifacts/name") is None
            True
        """
        *_, repository, snapshots, commit = ("", "", "", *Path(folder).parts)
        kind, *names = repository.split("--")
        if kind != "models" or len(names) != 2 or snapshots != "snapshots" or not _COMMIT.fullmatch(commit):
            return None
        try:
            return cls("/".join(names), commit)
        except InputError:  # a folder that looks like one of the cache
            return None

    def __str__(self) -> str:
        return f"hf://{self.repository}" + ("" if self.revision is None else f"@{self.revision}")


def is_hub_address(path: str | Path) -> bool:
    """Tell whether a path is the address of a repository; `Path` makes one slash of two.

    Example:
        >>> is_hub_address("hf://owner/name"), is_hub_address(Path("hf://owner/name")), is_hub_address("hf/owner")
        (True, True, False)
    """
    return Path(path).as_posix().startswith("hf:/")


def download(address: str | Path) -> Path:
    """Download an artifact into the cache of huggingface_hub, and return its folder there.

    Only the manifest and the files that it lists are downloaded; those that are in the cache are not downloaded again.
    Without a connection, what is in the cache is taken.

    Args:
        address: `hf://owner/name` or `hf://owner/name@revision`.

    Raises:
        ArtifactError: If there is no such repository or revision, if it holds no artifact, or if the Hub cannot be
            reached.
        MissingExtraError: If huggingface_hub is not installed.
    """
    place = HubAddress.parse(address if isinstance(address, str) else address.as_posix())
    hub = _import_library()
    options: dict[str, Any] = {"library_name": "offramp", "library_version": version("offramp")}
    with _explain_errors(hub, place, missing=MANIFEST):
        manifest = Path(hub.hf_hub_download(place.repository, MANIFEST, revision=place.revision, **options))
    folder = manifest.parent  # named by the commit, so that all files are of one
    for name in list_files(folder):
        with _explain_errors(hub, place, missing=name):
            hub.hf_hub_download(place.repository, name, revision=folder.name, **options)
    return folder


def push(
    model: "EarlyExitModel",
    repository: str,
    *,
    revision: str | None,
    private: bool | None,
    licence: str | None,
    card: bool,
    factory: Factory | None,
    weights: bool | None,
) -> str:
    """Upload a model in one commit; `EarlyExitModel.push_to_hub` describes the arguments."""
    place = HubAddress(repository, revision)
    if licence is not None and not _LICENCE.fullmatch(licence):
        raise InputError("license", expected="an identifier of the Hub, such as apache-2.0", got=repr(licence))
    hub = _import_library()
    if hub.get_token() is None:
        raise ArtifactError(
            f"cannot push to {place}",
            expected="a token with write access to the Hugging Face Hub",
            got="none",
            hint=LOG_IN,
        )
    if weights is None:  # whoever loads it has no other way to get them
        weights = factory_for(model.backbone, factory) is not None
    with TemporaryDirectory(prefix="offramp-push-") as temporary:
        folder = Path(temporary)
        save(model, folder, factory=factory, weights=weights)
        if card:
            write_card(model, folder, str(place), licence=licence, factory=factory)
        files = {file.name: file for file in sorted(folder.iterdir()) if not file.name.startswith(LOCK)}
        with _explain_errors(hub, place):
            api = hub.HfApi(library_name="offramp", library_version=version("offramp"))
            api.create_repo(repository, private=private, exist_ok=True)
            if revision is not None:
                api.create_branch(repository, branch=revision, exist_ok=True)
            # Another process may push meanwhile: the commit is refused unless it follows the one that is read here.
            head = api.model_info(repository, revision=revision).sha
            names = api.list_repo_files(repository, revision=head)
            changes = [hub.CommitOperationAdd(name, file) for name, file in files.items()]
            # Those of the model that was there before; other files of the repository are left alone.
            stale = [name for name in names if is_artifact_file(name) and name not in files]
            changes += [hub.CommitOperationDelete(name) for name in stale]
            commit = api.create_commit(
                repository, changes, commit_message="Push a model of offramp", revision=revision, parent_commit=head
            )
    return str(HubAddress(repository, commit.oid))


def _import_library() -> Any:
    try:
        import huggingface_hub.constants  # here, as it takes a while, and most models are in folders
        import huggingface_hub.errors
    except ImportError as error:
        raise MissingExtraError(
            "the Hugging Face Hub needs huggingface_hub", hint="pip install 'offramp[hub]'"
        ) from error
    return huggingface_hub


@contextmanager
def _explain_errors(hub: Any, place: HubAddress, *, missing: str | None = None) -> Iterator[None]:
    """Make errors of huggingface_hub an `ArtifactError` that says what to do.

    Args:
        hub: The library.
        place: The address.
        missing: The file that is read; None to write.
    """
    errors = hub.errors
    doing = f"cannot push to {place}" if missing is None else f"cannot load {place}"
    try:
        yield
    except errors.GatedRepoError as error:
        raise ArtifactError(
            doing,
            expected="a repository that you may read",
            got="one whose owner grants access on request",
            hint=f"ask for it on the repository's page, then {LOG_IN}",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ArtifactError(
            doing,
            expected="a repository that exists and that your token has access to",
            got=f"'{place.repository}', and {'no token' if hub.get_token() is None else 'a token'}",
            hint=f"check the name; if it is private, {LOG_IN}",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ArtifactError(
            doing, expected="a branch, a tag or a commit of the repository", got=f"'{place.revision}'"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise _unreachable(hub, doing, error) from error
    except errors.EntryNotFoundError as error:
        raise ArtifactError(
            doing,
            expected="an artifact that model.push_to_hub has written",
            got=f"a repository without {missing}",
            hint="push the model again, or load the repository with the library that it is for",
        ) from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", 0)
        if status in (401, 403):
            raise ArtifactError(
                doing,
                expected=f"a token with {'write' if missing is None else 'read'} access to '{place.repository}'",
                got="one without" if hub.get_token() else "none",
                hint=f"make another one on the settings page of the Hub, then {LOG_IN}",
            ) from error
        if status == 412 and missing is None:
            raise ArtifactError(
                doing,
                expected="a branch that nobody else writes to meanwhile",
                got="a commit that was made since the push began",
                hint="push again",
            ) from error
        raise ArtifactError(f"{doing}: {_first_line(error)}", hint="try again later") from error
    except _PROGRAM_ERRORS:
        raise
    except Exception as error:  # offline, refused or broken off: each version of the library has its own
        if isinstance(error, OSError) and error.errno in _FILE_ERRORS:
            raise _unwritable(hub, doing, error) from error
        raise _unreachable(hub, doing, error.__cause__ or error) from error


def _unwritable(hub: Any, doing: str, error: OSError) -> ArtifactError:
    """Return the error of files on this machine that cannot be read or written, such as on a full disk."""
    place = error.filename or hub.constants.HF_HUB_CACHE
    return ArtifactError(
        f"{doing}: {error.strerror}: {place}",
        hint="make room or give permission there, or choose another cache with HF_HUB_CACHE",
    )


def _unreachable(hub: Any, doing: str, error: BaseException) -> ArtifactError:
    """Return the error for a Hub that cannot be reached, or whose answer is of no use."""
    if hub.constants.is_offline_mode():
        return ArtifactError(
            doing,
            expected="a connection to the Hub"
            + ("" if doing.startswith("cannot push") else ", or the model in the cache"),
            got="HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE",
            hint="unset HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE",
        )
    return ArtifactError(
        f"{doing}: no usable answer from {hub.constants.ENDPOINT} ({_first_line(error)})",
        hint="check the network, HTTPS_PROXY and HF_ENDPOINT",
    )


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else 'no message'}"
