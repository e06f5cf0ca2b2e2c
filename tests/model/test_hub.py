"""Models in repositories of the Hub, against a stand-in on loopback; the real one may differ."""

import errno
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
import yaml
from markdown_it import MarkdownIt

import offramp
from offramp.backbone import Factory
from offramp.errors import ArtifactError, InputError, MissingExtraError, UntrustedNameError
from offramp.model._card import write_card
from offramp.model._frontier_picture import BOTTOM, HEIGHT, TOP, draw_frontier
from offramp.model._hub import HubAddress, download
from tests.artifact_examples import assert_same
from tests.cases import each, refuses
from tests.model import text_examples
from tests.model.artifact_examples import resnet
from tests.model.examples import images
from tests.model.hub_server import PART, READS, WRITES, Hub, Repository, serve_hub

# Of huggingface_hub's own upload by LFS.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

ADDRESS = "hf://somebody/shapes"
NAME = "somebody/shapes"
INPUTS = images(12, seed=3)[0]


def model() -> offramp.EarlyExitModel:
    return resnet().at(cost=0.9, policy="threshold")


def texts() -> offramp.EarlyExitModel:
    return text_examples.fitted().at(cost=2)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty hub, a token that may write, and an empty cache."""
    with serve_hub() as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.address)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
            hub.address + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setenv("HF_TOKEN", WRITES)
        huggingface_hub.close_session()
        yield hub
        huggingface_hub.close_session()


class TestRoundTrip:
    def test_answers_bit_for_bit_in_a_new_process(self, hub: Hub, tmp_path: Path) -> None:
        address = model().push_to_hub(NAME)
        assert address == f"{ADDRESS}@{hub.repositories[NAME].branches['main']}"
        np.save(tmp_path / "inputs.npy", INPUTS)
        code = (
            "import numpy, offramp, torch; torch.set_num_threads(1); "
            f"answer = offramp.load('{ADDRESS}').predict(numpy.load('inputs.npy')); "
            "torch.save([answer.probabilities, answer.exits, answer.relative_cost], 'answer.pt')"
        )
        environment = os.environ | {
            "HF_ENDPOINT": hub.address,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_OFFLINE": "0",
        }
        environment.pop("HF_TOKEN")
        subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)
        answer = model().predict(INPUTS)
        read = torch.load(tmp_path / "answer.pt")
        assert all(map(torch.equal, read, [answer.probabilities, answer.exits, answer.relative_cost]))
        assert hub.token is None  # reading a public repository needs none

    def test_all_points(self, hub: Hub) -> None:
        model().push_to_hub(NAME)
        assert_same(offramp.load(ADDRESS), model(), INPUTS)
        assert_same(offramp.load(Path(ADDRESS)), model(), INPUTS)  # which has lost a slash

    def test_texts(self, hub: Hub) -> None:
        texts().push_to_hub(NAME)
        assert_same(offramp.load(ADDRESS), texts(), text_examples.RAW)
        assert "pipeline_tag: text-classification" in hub.repositories[NAME].files("main")[1]["README.md"].decode()  # type: ignore[index]

    def test_large_files_go_by_lfs_in_parts_too(self, hub: Hub) -> None:
        model().push_to_hub(NAME)
        _, files = hub.repositories[NAME].files("main") or ("", {})
        tensors = {name for name in files if name.endswith(".safetensors")}
        assert {name.partition("-")[0] for name in tensors} == {"exits", "points", "backbone", "splits"}
        assert hub.repositories[NAME].by_lfs == tensors
        sizes = [len(files[name]) for name in tensors]
        assert min(sizes) < PART < max(sizes)
        asked = " ".join(hub.asked)
        assert re.search(r"PUT /lfs/\w{64} ", asked)
        assert re.search(r"PUT /lfs/\w{64}/2 ", asked)
        assert set(files) - tensors == {".gitattributes", "README.md", "frontier.svg", "manifest.json"}

    def test_one_commit_replaces_the_model_and_leaves_other_files(self, hub: Hub) -> None:
        model().push_to_hub(NAME)
        repository = hub.repositories[NAME]
        before = dict(repository.files("main")[1])  # type: ignore[index]
        repository.commit("main", before | {"README.md": b"mine", "notes.txt": b"mine", "other.safetensors": b"x"})
        texts().push_to_hub(NAME, card=False)
        assert len(repository.commits) == 4
        _, files = repository.files("main") or ("", {})
        assert files["README.md"] == files["notes.txt"] == b"mine"
        assert "other.safetensors" in files
        listed = {f"{name}-{entry['sha256'][:16]}.safetensors" for name, entry in _manifest(files)["files"].items()}
        assert {name for name in files if name.endswith(".safetensors")} == listed | {"other.safetensors"}
        assert_same(offramp.load(ADDRESS), texts(), text_examples.RAW)

    def test_the_same_model_makes_no_commit(self, hub: Hub) -> None:
        assert model().push_to_hub(NAME) == model().push_to_hub(NAME)

    def test_revisions(self, hub: Hub) -> None:
        first = model().push_to_hub(NAME)
        texts().push_to_hub(NAME, revision="texts")
        assert 'load("hf://somebody/shapes@texts")' in _card(hub, "texts")
        assert_same(offramp.load(f"{ADDRESS}@texts"), texts(), text_examples.RAW)
        assert_same(offramp.load(ADDRESS), model(), INPUTS)
        texts().push_to_hub(NAME)
        assert_same(offramp.load(first), model(), INPUTS)

    def test_a_push_after_that_of_another_process(self, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        model().push_to_hub(NAME)
        repository, list_files = hub.repositories[NAME], huggingface_hub.HfApi.list_repo_files

        def list_late(*arguments: Any, **options: Any) -> list[str]:
            repository.commit("main", repository.files("main")[1] | {"notes.txt": b"theirs"})  # type: ignore[index]
            return list_files(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(huggingface_hub.HfApi, "list_repo_files", list_late)
            with refuses(ArtifactError, problem="cannot push", got="since the push began", hint="push again"):
                texts().push_to_hub(NAME)
        assert_same(offramp.load(ADDRESS), model(), INPUTS)
        texts().push_to_hub(NAME)
        assert_same(offramp.load(ADDRESS), texts(), text_examples.RAW)
        assert "notes.txt" in repository.files("main")[1]  # type: ignore[index]

    def test_private(self, hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        model().push_to_hub(NAME, private=True)
        assert hub.repositories[NAME].private
        monkeypatch.setenv("HF_TOKEN", READS)
        assert_same(offramp.load(ADDRESS), model(), INPUTS)
        monkeypatch.delenv("HF_TOKEN")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "empty"))
        with refuses(ArtifactError, expected="your token has access", got="no token", hint="hf auth login"):
            offramp.load(ADDRESS)

    def test_only_what_the_manifest_lists_is_downloaded_and_only_once(self, hub: Hub) -> None:
        model().push_to_hub(NAME)
        repository = hub.repositories[NAME]
        repository.commit("main", repository.files("main")[1] | {"huge.safetensors": b"x"})  # type: ignore[index]
        folder = download(ADDRESS)
        manifest = json.loads((folder / "manifest.json").read_bytes())
        assert len(list(folder.iterdir())) == 1 + len(manifest["files"])
        hub.asked.clear()
        assert download(ADDRESS) == folder
        assert hub.asked == [f"HEAD /{NAME}/resolve/main/manifest.json"]

    def test_a_damaged_file_is_refused(self, hub: Hub) -> None:
        model().push_to_hub(NAME)
        for oid, raw in hub.objects.items():
            hub.objects[oid] = raw[:-1] + b"?"
        with refuses(ArtifactError, problem="is not the file that was saved"):
            offramp.load(ADDRESS)

    def test_code_needs_trust(self, hub: Hub) -> None:
        code = "tests.model.examples:backbone"
        model().push_to_hub(NAME, factory=Factory(code))
        assert f'trust=["{code}"]' in _card(hub)
        with pytest.raises(UntrustedNameError):
            offramp.load(ADDRESS)
        assert_same(offramp.load(ADDRESS, trust=[code]), model(), INPUTS)

    def test_a_network_without_a_factory(self, hub: Hub) -> None:
        own = replace(model(), backbone=_without_factory(model().backbone))
        own.push_to_hub(NAME)
        assert "backbone=network" in _card(hub)
        assert_same(offramp.load(ADDRESS, backbone=own.backbone), own, INPUTS)

    def test_processes_of_a_predictor(self, hub: Hub) -> None:
        model().push_to_hub(NAME)
        predict = offramp.load(ADDRESS).predictor(artifact=ADDRESS)
        assert predict.artifact == ADDRESS
        assert predict({"image": INPUTS})["label"].tolist() == model().predict(INPUTS).labels.tolist()

    def test_a_predictor_holds_the_address_and_the_commit(
        self, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        address = model().push_to_hub(NAME)
        loaded = offramp.load(ADDRESS)
        texts().push_to_hub(NAME)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "of another machine"))
        for made in (loaded, loaded.at(cost=2)):
            predict = made.predictor()
            assert predict.artifact == address
            assert predict({"image": INPUTS})["label"].tolist() == made.predict(INPUTS).labels.tolist()

    def test_a_command_line_names_the_repository(
        self, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from offramp.cli.main import main

        address = model().push_to_hub(NAME)
        inputs, labels = images(60, seed=4)
        np.savez(tmp_path / "test.npz", x=inputs, y=labels)
        monkeypatch.chdir(tmp_path)
        assert main(["evaluate", ADDRESS, "--data", "test.npz", "--report", "report", "--anyway"]) == 0
        assert f"offramp predict {address} --data" in (tmp_path / "report" / "report.html").read_text()
        assert main(["serve", ADDRESS, "--replicas", "2", "--write-config", "serve.yaml"]) == 0
        (application,) = yaml.safe_load((tmp_path / "serve.yaml").read_text())["applications"]
        assert application["name"] == "shapes"
        assert application["args"]["artifact"] == address
        out = capsys.readouterr()
        assert "shapes: at the point that it was saved at" in out.out + out.err

    def test_the_command_line(self, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        from offramp.cli.main import main

        model().push_to_hub(NAME)
        np.savez(tmp_path / "new.npz", x=INPUTS)
        line = ["predict", ADDRESS, "--data", str(tmp_path / "new.npz"), "--out", str(tmp_path / "answers.jsonl")]
        assert main(line) == 0
        rows = [json.loads(row) for row in (tmp_path / "answers.jsonl").read_text().splitlines()]
        assert [int(row["label"]) for row in rows] == model().predict(INPUTS).labels.tolist()
        assert main(["inspect", ADDRESS]) == 0
        assert main(["predict", "hf://somebody/nothing", *line[2:]]) == 1
        assert "hf://somebody/nothing" in capsys.readouterr().err


class TestOffline:
    def test_the_cache_is_read(self, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        model().push_to_hub(NAME)
        offramp.load(ADDRESS)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        assert_same(offramp.load(ADDRESS), model(), INPUTS)
        refusal = {"expected": "or the model in the cache", "got": "HF_HUB_OFFLINE", "hint": "unset HF_HUB_OFFLINE"}
        for address in ("hf://somebody/else", "hf://somebody/push"):
            with refuses(ArtifactError, problem=address, **refusal):
                offramp.load(address)
        with refuses(ArtifactError, problem="cannot push", got="HF_HUB_OFFLINE"):
            model().push_to_hub(NAME)

    def test_nobody_answers(self, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as place:
            nobody = f"http://127.0.0.1:{place.getsockname()[1]}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", nobody)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", nobody + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr("huggingface_hub.file_download._ETAG_RETRY_TIMEOUT", 1)
        monkeypatch.setattr("time.sleep", lambda seconds: None)  # between attempts of the library
        for act in (lambda: offramp.load(ADDRESS), lambda: model().push_to_hub(NAME)):
            with refuses(ArtifactError, problem=f"no usable answer from {nobody}", hint="check the network"):
                act()


class TestRefusals:
    @each(
        "address",
        [
            "hf://shapes",
            "hf://somebody/shapes/points",
            "hf://somebody/shapes@",
            "hf://somebody/..",
            "hf://somebody/shapes@../../main",
            "hf://some body/shapes",
            "hf://somebody/-shapes",
        ],
    )
    def test_an_address(self, address: str) -> None:
        with refuses(InputError, expected="hf://owner/name", got=address):
            offramp.load(address)

    @each("repository", ["shapes", "somebody/shapes@v1", "hf://somebody/shapes"])
    def test_a_repository_to_push_to(self, repository: str) -> None:
        with refuses(InputError, expected="owner/name", got=repository):
            model().push_to_hub(repository)

    def test_a_licence(self) -> None:
        with refuses(InputError, expected="an identifier", got="\\nmit"):
            model().push_to_hub(NAME, license="\nmit")

    def test_no_such_repository(self, hub: Hub) -> None:
        with refuses(ArtifactError, got="'somebody/nothing', and a token", hint="check the name"):
            offramp.load("hf://somebody/nothing")

    def test_no_such_revision(self, hub: Hub) -> None:
        model().push_to_hub(NAME)
        with refuses(ArtifactError, expected="a branch, a tag or a commit", got="'v9'"):
            offramp.load(f"{ADDRESS}@v9")

    def test_a_gated_repository(self, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        hub.repositories[NAME] = Repository(gated=True)
        monkeypatch.setenv("HF_TOKEN", READS)
        with refuses(ArtifactError, got="grants access on request"):
            offramp.load(ADDRESS)

    def test_a_repository_of_another_library(self, hub: Hub) -> None:
        hub.repositories[NAME] = Repository()
        hub.repositories[NAME].commit("main", {"model.safetensors": b"", "config.json": b"{}"})
        with refuses(ArtifactError, expected="push_to_hub", got="without manifest.json"):
            offramp.load(ADDRESS)
        assert not any("model.safetensors" in asked for asked in hub.asked)
        hub.repositories[NAME].commit("main", {"manifest.json": b'{"manifest_version": 3}'})
        with refuses(ArtifactError, problem="'format': is missing"):
            offramp.load(ADDRESS)

    def test_a_repository_that_lacks_a_file(self, hub: Hub) -> None:
        model().push_to_hub(NAME)
        repository = hub.repositories[NAME]
        files = repository.files("main")[1]  # type: ignore[index]
        repository.commit("main", {name: raw for name, raw in files.items() if not name.startswith("exits")})
        with refuses(ArtifactError, got="without exits-"):
            offramp.load(ADDRESS)

    def test_no_token(self, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HF_TOKEN")
        with refuses(ArtifactError, expected="a token with write access", got="none", hint="hf auth login"):
            model().push_to_hub(NAME)
        assert hub.asked == []

    @each("token", [READS, "hf_wrong"])
    def test_a_token_that_may_not_write(self, hub: Hub, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_TOKEN", token)
        with refuses(ArtifactError, expected="write access to 'somebody/shapes'", got="one without") as raised:
            model().push_to_hub(NAME)
        assert token not in str(raised.value)

    def test_a_cache_that_cannot_be_written(self, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        model().push_to_hub(NAME)
        (tmp_path / "file").write_text("")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "file" / "cache"))
        with refuses(ArtifactError, problem=str(tmp_path / "file"), hint="HF_HUB_CACHE"):
            offramp.load(ADDRESS)

    @each("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
    def test_a_disk_that_takes_no_more(self, hub: Hub, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise OSError(number, os.strerror(number))

        model().push_to_hub(NAME)
        monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
        with refuses(ArtifactError, problem=os.strerror(number), hint="HF_HUB_CACHE"):
            offramp.load(ADDRESS)

    @each("error", [TypeError, AttributeError, MemoryError])
    def test_errors_of_a_program_stay_as_they_are(
        self, hub: Hub, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
    ) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise error("of the program")

        monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
        with pytest.raises(error, match="of the program"):
            offramp.load(ADDRESS)

    def test_without_the_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        for act in (lambda: offramp.load(ADDRESS), lambda: model().push_to_hub(NAME)):
            with refuses(MissingExtraError, hint="offramp[hub]"):
                act()


def test_parts_of_an_address() -> None:
    assert HubAddress.parse("hf:/a/b@refs/pr/1") == HubAddress("a/b", "refs/pr/1")
    assert str(HubAddress.parse("hf://a/b@v1")) == "hf://a/b@v1"


class TestSnapshots:
    """Links are followed in a snapshot of the cache, to its blobs, and nowhere else."""

    def test_the_folder_of_a_snapshot_can_be_loaded(self, hub: Hub) -> None:
        model().push_to_hub(NAME)
        folder = download(ADDRESS)
        assert (folder / "manifest.json").is_symlink()
        assert_same(offramp.load(folder), model(), INPUTS)

    def test_blobs_that_repositories_share(self, hub: Hub) -> None:
        model().push_to_hub(NAME)
        folder = download(ADDRESS)
        shared = folder.parents[2] / "blobs"
        shared.mkdir()
        for blob in list((folder.parents[1] / "blobs").iterdir()):
            blob.rename(shared / blob.name)
            blob.symlink_to(shared / blob.name)
        assert_same(offramp.load(folder), model(), INPUTS)

    @each("place", ["beside", "snapshot"])
    def test_other_links_are_refused(self, tmp_path: Path, place: str) -> None:
        model().save(tmp_path / "real", weights=True)
        folder = tmp_path / ("beside" if place == "beside" else "cache/models--a--b/snapshots/0123")
        folder.mkdir(parents=True)
        for file in (tmp_path / "real").iterdir():
            (folder / file.name).symlink_to(file)
        with refuses(ArtifactError, problem="manifest.json is not there"):
            offramp.load(folder)
        (folder / "manifest.json").unlink()
        (folder / "manifest.json").write_bytes((tmp_path / "real" / "manifest.json").read_bytes())
        with refuses(ArtifactError, problem="is missing"):
            offramp.load(folder)


class TestCard:
    NAMES = (
        "plain_name",
        "](javascript:alert(1))<script>alert(1)</script>",
        "| a | b |\n# heading\n---\n`code` **bold** &lt; http://x.org www.x.org a@b.org\u202e",
    )

    def page(self, folder: Path, model: offramp.EarlyExitModel, **options: Any) -> str:
        write_card(model, folder, ADDRESS, **{"licence": None, "factory": None, **options})
        return (folder / "README.md").read_text(encoding="utf-8")

    def test_the_hub_reads_its_head(self, tmp_path: Path) -> None:
        page = self.page(tmp_path, model(), licence="apache-2.0")
        head = yaml.safe_load(page.split("---\n")[1])
        assert head["library_name"] == "offramp"
        assert head["license"] == "apache-2.0"
        assert head["pipeline_tag"] == "image-classification"
        assert "early-exit" in head["tags"]
        card: Any = huggingface_hub.ModelCard
        assert card(page).data.to_dict() == head

    def test_names_stay_text(self, tmp_path: Path) -> None:
        hostile = replace(model(), classes=self.NAMES)
        hostile.backbone.name, before = self.NAMES[1], hostile.backbone.name
        try:
            rendered = MarkdownIt("gfm-like", {"linkify": False}).render(
                self.page(tmp_path, hostile).split("---\n", 2)[2]
            )
        finally:
            hostile.backbone.name = before
        read = _Tags()
        read.feed(rendered)
        assert set(read.tags) <= {"h1", "h2", "p", "code", "pre", "img", "table", "tr", "th", "td", "ul", "li"} | {
            "thead",
            "tbody",
        }
        text = " ".join(" ".join(read.texts).split())
        assert "plain_name" in text
        assert "](javascript:alert(1))<script>alert(1)</script>" in text
        assert "| a | b | # heading --- `code` **bold** &lt; http://x.org www.x.org a@b.org" in text
        assert "\u202e" not in text
        assert read.tags.count("img") == 1

    def test_the_table_marks_the_point(self, tmp_path: Path) -> None:
        page = self.page(tmp_path, model())
        (row,) = [line for line in page.splitlines() if "this artifact's" in line and line.startswith("|")]
        assert row.startswith(f"| {model().point.tune_metrics['cost']:.3f} | ")
        assert f"{100 * model().full_accuracy:.2f} %" in page

    def test_the_guarantee(self, tmp_path: Path) -> None:
        assert "None at the operating point" in self.page(tmp_path, model())
        bound = resnet().at(max_drop=0.9)
        assert "with 95 % confidence it loses at most 90 points" in self.page(tmp_path, bound)

    def test_its_python_runs(self, hub: Hub) -> None:
        model().push_to_hub(NAME)
        (block,) = re.findall(r"```python\n(.*?)```", _card(hub), flags=re.DOTALL)
        names: dict[str, Any] = {"images": INPUTS}
        exec(block, names)
        assert isinstance(names["model"], offramp.EarlyExitModel)

    def test_the_picture(self, tmp_path: Path) -> None:
        from xml.etree import ElementTree

        for chosen in (model(), resnet().at(cost=2), replace(model(), full_accuracy=1.0)):
            root = ElementTree.fromstring(draw_frontier(chosen))
            circles = root.findall(".//{*}circle")
            assert all(0 < float(circle.get("cx", "-1")) < 640 for circle in circles)
            assert all(0 < float(circle.get("cy", "-1")) < 360 for circle in circles)
            assert len(circles) > 1

    @each("accuracy", [0.0, 0.3, 1.0])
    def test_the_line_of_the_full_network_is_inside_the_axes(self, accuracy: float) -> None:
        from xml.etree import ElementTree

        root = ElementTree.fromstring(draw_frontier(replace(model(), full_accuracy=accuracy)))
        (line,) = [line for line in root.findall(".//{*}line") if line.get("stroke-dasharray")]
        assert TOP <= float(line.get("y1", "-1")) <= HEIGHT - BOTTOM

    def test_a_frontier_of_one_point(self) -> None:
        one = model()
        alone = replace(
            one, points={"threshold": [one.point]}, chosen=one.point, full_accuracy=one.point.tune_metrics["accuracy"]
        )
        assert draw_frontier(alone).count("<circle") == 2


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _manifest(files: dict[str, bytes]) -> Any:
    return json.loads(files["manifest.json"])


def _card(hub: Hub, revision: str = "main") -> str:
    files = hub.repositories[NAME].files(revision)
    assert files is not None
    return files[1]["README.md"].decode()


def _without_factory(backbone: offramp.Backbone) -> offramp.Backbone:
    import copy

    own = copy.deepcopy(backbone)
    own.factory = None
    return own
