"""Requests that are made to hurt a server: refused in little time and memory, while others are answered."""

import base64
import http.client
import json
import re
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from offramp.data._images import MOST_SCANS, decode_image
from offramp.errors import InputError
from offramp.preprocessing._images import photo_preprocessing
from offramp.serve import Scheduler
from offramp.serve._requests import Limits, describe_error
from tests.cases import each
from tests.model.examples import images
from tests.serve.examples import model
from tests.serve.test_app import INFER, call, serving

LIMITS = Limits(body_bytes=1_000_000, bodies_bytes=300_000, body_s=2.0)
THREATS = Path(__file__).parents[2] / "docs" / "reference" / "threats.md"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(Scheduler(model()), LIMITS) as port:
        yield port


def save(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png_of(width: int, height: int) -> bytes:
    """A PNG file whose header is right, and which has no pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))


def many_scans(count: int) -> bytes:
    """A progressive JPEG file that repeats its last scan."""
    data = save(Image.new("RGB", (64, 64)), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * count + b"\xff\xd9"


def ask(port: int, file: bytes) -> tuple[int, Any]:
    return call(port, "/predict", {"inputs": [base64.b64encode(file).decode()]})


@each(
    ("file", "words"),
    [
        (png_of(50_000, 50_000), "pixels"),
        (png_of(2**31 - 1, 2**31 - 1), "image"),
        (many_scans(500), "scans"),
        (save(Image.new("RGB", (64, 64)), "JPEG")[:300], "decoded"),
        (save(Image.new("RGB", (64, 64)), "TIFF"), "expected a file of BMP, GIF, JPEG, PNG, WEBP"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "expected a file of BMP, GIF, JPEG, PNG, WEBP"),
        (b"", "expected a file of"),
        (b"GIF89a" + b"\xff" * 500, "decoded"),
    ],
)
def test_image_bombs_are_refused_before_they_are_decoded(port: int, file: bytes, words: str) -> None:
    begin = time.monotonic()
    status, answer = ask(port, file)
    assert (status, words in answer["error"]) == (400, True), answer
    assert "0x" not in answer["error"]  # an address in memory
    assert time.monotonic() - begin < 5


def test_of_an_animation_one_frame_is_decoded() -> None:
    frames = [Image.new("P", (40, 40), shade) for shade in range(200)]
    file = save(frames[0], "GIF", save_all=True, append_images=frames[1:])
    begin = time.monotonic()
    assert decode_image(file, place="x").shape == (40, 40, 3)
    assert time.monotonic() - begin < 2


def test_an_ordinary_progressive_jpeg_is_decoded() -> None:
    file = save(Image.new("RGB", (64, 64)), "JPEG", progressive=True)
    assert 2 < file.count(b"\xff\xda") < MOST_SCANS
    assert decode_image(file, place="x").shape == (64, 64, 3)


def test_long_images_are_prepared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 images of 2 x 200 pixels, resized to 256 x 25,600, would take 20 GB together."""
    import torch.nn.functional as F

    sizes: list[int] = []
    interpolate = F.interpolate

    def counting(inputs: Any, *arguments: Any, **options: Any) -> Any:
        sizes.append(len(inputs))
        return interpolate(inputs, *arguments, **options)

    monkeypatch.setattr("torch.nn.functional.interpolate", counting)
    prepare = photo_preprocessing(16, resized=16, mode="bilinear", mean=(0.0,) * 3, std=(1.0,) * 3)
    draw = np.random.default_rng(0)
    for shape, together in (((5, 2, 200, 3), 1), ((5, 200, 2, 3), 1), ((5, 20, 30, 3), 5)):
        batch = draw.integers(0, 256, shape).astype(np.uint8)
        for inputs in (batch, list(batch)):
            sizes.clear()
            found = prepare(inputs)
            assert set(sizes) == {together}
            assert found.tolist() == [prepare(batch[row : row + 1])[0].tolist() for row in range(5)]


NESTED = b"[" * 900 + b"]" * 900
"""A list within lists, as deep as the parser goes."""


@each(
    "body",
    [
        b'{"inputs": ' + NESTED + b"}",
        b'{"inputs": ["a"], "budget": ' + NESTED + b"}",
        b'{"inputs": [' + b"1" * 5000 + b"]}",
        b'{"inputs": [1e999]}',
        b'{"inputs": [-' + b"9" * 400 + b"]}",
        b'{"inputs": ["\\ud800"]}',
        b'{"inputs": ["====", "A", "\xf0\x9f\x98\x80"]}',
        '{"inputs": ["é"]}'.encode("utf-16"),
        b'{"inputs": [' + b"{}," * 300 + b"{}]}",
        b"\xef\xbb\xbf{}",
        b"\x00",
        b"",
    ],
)
def test_json_that_is_made_to_hurt_is_refused(port: int, body: bytes) -> None:
    for path in ("/predict", INFER):
        status, answer = call(port, path, body)
        assert status == 400, answer
        assert len(answer["error"]) < 1000


@each(
    "change",
    [
        {"id": json.loads(NESTED)},
        {"id": 7},
        {"outputs": [{"name": json.loads(NESTED)}]},
        {"outputs": [{"name": "x" * 100_000}]},
        {"parameters": {"budget": json.loads(NESTED)}},
        {"inputs": [{"name": f"t{number}", "datatype": "BOOL", "shape": [1], "data": [1]} for number in range(65)]},
        {"inputs": [{"name": name * 50_000, "datatype": "BYTES", "shape": [1], "data": ["a"]} for name in "ab"]},
        {"inputs": [{"name": "x", "datatype": "FP64", "shape": [2**31 - 1] * 8, "data": []}]},
        {"inputs": [{"name": "x", "datatype": "FP64", "shape": [2**31 - 1] * 8, "data": [1.0]}]},
    ],
)
def test_tensors_that_are_made_to_hurt_are_refused(port: int, change: dict[str, Any]) -> None:
    tensor = {"name": "image", "datatype": "UINT8", "shape": [1, 32, 32, 3], "data": [0] * 3072}
    status, answer = call(port, INFER, {"inputs": [tensor], **change})
    assert status == 400, answer
    assert len(answer["error"]) < 1000


@each(
    ("data", "shape"),
    [
        (struct.pack("<I", 2**32 - 1) + b"a", [1]),
        (struct.pack("<I", 0) * 1000, [1]),
        (struct.pack("<I", 0) * 1000, [1000]),
        (b"\x01\x00", [1]),
    ],
)
def test_lengths_of_binary_values_that_lie_are_refused(port: int, data: bytes, shape: list[int]) -> None:
    tensor = {"name": "x", "datatype": "BYTES", "shape": shape, "parameters": {"binary_data_size": len(data)}}
    header = json.dumps({"inputs": [tensor]}).encode()
    status, answer = call(port, INFER, header + data, {"Inference-Header-Content-Length": str(len(header))})
    assert status == 400, answer


def test_large_bodies_are_limited_together_and_small_ones_pass(port: int) -> None:
    """Two clients send the most that bodies may have together, and stop; a third large body is told to try again."""
    slow = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(2)]
    for connection in slow:
        connection.putrequest("POST", "/predict")
        connection.putheader("Content-Length", "900000")
        connection.endheaders(b" " * 200_000)
    time.sleep(0.5)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/predict", b" " * 200_000)
    refused = connection.getresponse()
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    connection.close()
    body = {"inputs": images(1, seed=3)[0].tolist()}
    assert call(port, "/predict", body)[0] == 200
    for connection in slow:
        assert connection.getresponse().status == 408
        connection.close()
    assert call(port, "/predict", b" " * 200_000)[0] == 400  # what they held is free again


def test_messages_have_no_hints_for_the_owner_of_the_model(port: int) -> None:
    error = InputError("inputs", expected="images", got="texts", hint="call model.at(...)")
    assert describe_error(error) == "inputs: expected images, got texts"
    good = images(1, seed=3)[0].tolist()
    for body in ({"inputs": good, "budget": 1e-9}, {"inputs": good, "max_drop": 1e-9}, {"inputs": [[[[1]]]]}):
        status, answer = call(port, "/predict", body)
        assert status == 400
        assert not re.search(r"\w+\(|anyway|--\w|pass |fit ", answer["error"]), answer


def test_valid_requests_are_answered_meanwhile(port: int) -> None:
    stop = threading.Event()

    def attack() -> None:
        while not stop.is_set():
            ask(port, png_of(50_000, 50_000))
            call(port, "/predict", b"[" * 100_000)

    attackers = [threading.Thread(target=attack) for _ in range(3)]
    for attacker in attackers:
        attacker.start()
    try:
        inputs = images(10, seed=3)[0]
        for row in range(10):
            status, answer = call(port, "/predict", {"inputs": inputs[row : row + 1].tolist()})
            assert status == 200
            assert answer["predictions"][0]["label"] == model().predict(inputs[row : row + 1]).names[0]
    finally:
        stop.set()
        for attacker in attackers:
            attacker.join()


def test_every_line_of_the_threat_model_names_tests_that_exist() -> None:
    rows = [line for line in THREATS.read_text().splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) > 10
    for row in rows:
        tests = re.findall(r"`((?:tests|lab/tests)/[\w/]+\.py)::([\w:]+)`", row)
        assert tests, row
        for path, name in tests:
            found: Any = import_module(path.removesuffix(".py").replace("/", "."))
            for part in name.split("::"):
                found = getattr(found, part)
