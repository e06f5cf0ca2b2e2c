"""Hostile requests, made of valid ones by a seeded generator."""

import base64
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from offramp.serve._messages import MESSAGES

__all__ = ["Attacks", "Request", "encode", "long_images", "many_scans", "png_bomb"]


@dataclass(frozen=True)
class Request:
    """An HTTP request."""

    path: str
    body: bytes
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)


VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    10**400,
    -(10**4000),
    0.5,
    1e308,
    "",
    "\ud800",
    "\u0301" * 5000,
    "a" * 50_000,
    [],
    {},
    [[]],
    [[1], [2, 3]],
    ["a", 1],
    {"name": "x"},
)
"""Values that replace others in a JSON document."""

WORDS = (
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"-0",
    b"1" * 5000,
    b"[" * 3000,
    b'{"a":' * 3000,
    b"\xff",
    b"\x00",
)
"""Bytes that are put into a body."""

SHAPES: tuple[list[Any], ...] = (
    [2**31 - 1] * 8,
    [2**62, 4],
    [0],
    [-1, 3],
    [],
    [1] * 40,
    [1.5],
    ["1"],
    [2**31 - 1, 2**31 - 1],
)


class Attacks:
    """Requests against a server of images or texts.

    Args:
        name: Name of the model.
        samples: Valid inputs: arrays `H x W x 3`, or texts.
        seed: Seed of all choices.
    """

    def __init__(self, name: str, samples: list[Any], seed: int) -> None:
        self._name, self._samples = name, samples
        self._draw = np.random.default_rng(seed)
        self._texts = isinstance(samples[0], str)
        self._encoded = [] if self._texts else [encode(sample) for sample in samples]
        makers = [png_bomb, truncated_jpeg, many_frames, many_scans, broken_tiff, garbage, large_webp]
        self._files = [base64.b64encode(make(self._draw)).decode() for make in makers for _ in range(4)]
        self._long_images = long_images()

    def next(self) -> Request:
        """Return a hostile request over HTTP."""
        makers: list[tuple[float, Callable[[], Request]]] = [
            (0.30, self._changed_predict),
            (0.25, self._changed_infer),
            (0.20, self._changed_bytes),
            (0.10, self._binary),
            (0.10, self._wrong_route),
            (0.048, self._file),
            (0.002, self._large),
        ]
        shares = np.array([share for share, _ in makers])
        return makers[int(self._draw.choice(len(makers), p=shares / shares.sum()))][1]()

    def next_message(self) -> bytes:
        """Return a hostile message over gRPC: a valid one with changed fields or bytes."""
        fields = self._infer(int(self._draw.integers(1, 3)))
        tensor = {key: fields["inputs"][0][key] for key in ("name", "datatype", "shape")}
        if self._flip(0.3):
            tensor["shape"] = [int(size) for size in self._draw.integers(-2, 2**40, self._draw.integers(0, 9))]
        if self._flip(0.3):
            tensor["datatype"] = self._pick(["FP16", "FP32", "INT64", "BOOL", "BYTES", "x" * 20_000])
        values = self._draw.bytes(int(self._draw.integers(0, 4000)))
        raw = [values] if self._flip(0.5) else [struct.pack("<I", len(values)) + values, b""][: self._count(3)]
        parameters = [{"key": self._pick(["budget", "sets", "x"]), "value": {"double_param": float("nan")}}]
        message = MESSAGES["ModelInferRequest"](
            model_name=self._name if self._flip(0.9) else "other",
            inputs=[tensor] * self._count(3),
            raw_input_contents=raw,
            parameters=parameters[: self._count(2)],
        )
        data: bytes = message.SerializeToString()
        return self._change_bytes(data) if self._flip(0.5) else data

    def _changed_predict(self) -> Request:
        content: dict[str, Any] = {"inputs": self._inputs(self._count(4) + 1), "budget": 0.9, "sets": 0.1}
        return Request("/predict", self._dump(self._change(content)))

    def _changed_infer(self) -> Request:
        content = self._infer(self._count(3) + 1)
        if self._flip(0.3):
            content["inputs"][0]["shape"] = self._pick(SHAPES)
        elif self._flip(0.2):
            content["inputs"] = content["inputs"] * int(self._draw.integers(2, 200))
        return Request(self._route(), self._dump(self._change(content)))

    def _changed_bytes(self) -> Request:
        valid = {"inputs": self._inputs(1)} if self._flip(0.5) else self._infer(1)
        path = "/predict" if "id" not in valid else self._route()
        return Request(path, self._change_bytes(self._dump(valid)))

    def _binary(self) -> Request:
        """Return a request with tensors as binary data, whose lengths may be wrong."""
        if self._texts or self._flip(0.5):
            values = [self._draw.bytes(int(self._draw.integers(0, 300))) for _ in range(self._count(4))]
            lengths = [len(value) if self._flip(0.7) else int(self._draw.integers(0, 2**32)) for value in values]
            pairs = zip(lengths, values, strict=True)
            data = b"".join(struct.pack("<I", length) + value for length, value in pairs)
            tensor: dict[str, Any] = {"name": "x", "datatype": "BYTES", "shape": [max(1, len(values))]}
        else:
            data = self._draw.bytes(32 * 32 * 3)
            datatype = self._pick(["UINT8", "FP32", "FP16", "INT64", "BOOL", "UINT64"])
            tensor = {"name": "x", "datatype": datatype, "shape": self._pick([[1, 32, 32, 3], [3, 32, 32], *SHAPES])}
        size = len(data) if self._flip(0.7) else self._pick([0, -1, 2**40, "1", None, len(data) - 1])
        tensor["parameters"] = {"binary_data_size": size}
        header = json.dumps({"inputs": [tensor]}).encode()
        length = str(len(header)) if self._flip(0.8) else self._pick(["-1", "0", "99999999999", "x", "1e3", ""])
        return Request(self._route(), header + data, headers={"Inference-Header-Content-Length": length})

    def _wrong_route(self) -> Request:
        path = self._pick(
            ["/", "/predict/", "/v2/models/%00/infer", "/v2/models/other/infer", "/%2e%2e/%2e%2e/etc/passwd"]
        )
        path = self._pick(
            [path, "/" + "a" * 4000, f"/v2/models/{self._name}/versions/99/infer", "/v2", "/openapi.json"]
        )
        method = self._pick(["GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
        headers = {f"x-{number}": "v" * 100 for number in range(self._count(100))}
        headers |= {"Content-Type": self._pick(["text/plain", "multipart/form-data", "application/json", "\u00e4"])}
        return Request(path, b"" if method == "GET" else self._draw.bytes(100), method, headers)

    def _file(self) -> Request:
        """Return a request with image files that are broken, or far larger when decoded."""
        if self._flip(0.02):
            return Request("/predict", self._dump({"inputs": self._long_images}))
        if self._flip(0.3):
            file = base64.b64encode(self._change_bytes(base64.b64decode(self._pick(self._files)))).decode()
        else:
            file = self._pick(self._files)
        return Request("/predict", self._dump({"inputs": [*[file] * self._count(3), *self._inputs(1)]}))

    def _large(self) -> Request:
        """Return a request of megabytes, which must be read before it can be refused."""
        size = int(self._draw.integers(2**20, 8 * 2**20))
        body = self._pick([b"0,", b"[],", b'"",', b"0.5,", b"[[],[]],"])
        body = b'{"inputs": [' + body * (size // len(body)) + b"0]}"
        return Request(self._pick(["/predict", self._route()]), body)

    def _inputs(self, count: int) -> list[Any]:
        rows = self._draw.integers(len(self._samples), size=count).tolist()
        if self._texts:
            return [self._samples[row] for row in rows]
        return [self._encoded[row] if self._flip(0.7) else self._samples[row].tolist() for row in rows]

    def _infer(self, count: int) -> dict[str, Any]:
        rows = [self._samples[int(row)] for row in self._draw.integers(len(self._samples), size=count)]
        if self._texts and self._flip(0.5):
            ids = self._draw.integers(-3, 40, (count, int(self._draw.integers(1, 60)))).tolist()
            shape = [count, len(ids[0])]
            both = {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]}
            inputs = [{"name": name, "datatype": "INT64", "shape": shape, "data": data} for name, data in both.items()]
        elif self._texts:
            inputs = [{"name": "text", "datatype": "BYTES", "shape": [count], "data": rows}]
        else:
            stacked = np.stack(rows)
            data = stacked.ravel().tolist()
            inputs = [{"name": "image", "datatype": "UINT8", "shape": list(stacked.shape), "data": data}]
        return {"id": "1", "inputs": inputs, "outputs": [{"name": "label"}], "parameters": {"budget": 0.9}}

    def _change(self, content: Any) -> Any:
        """Replace, remove or add a value somewhere in a JSON document, in place."""
        node = content
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(min(len(node), 8)))
            if not keys:
                return content
            key = keys[int(self._draw.integers(len(keys)))]
            if not isinstance(node[key], dict | list) or not node[key] or self._flip(0.2):
                break
            node = node[key]
        if self._flip(0.1):
            del node[key]
        elif self._flip(0.1) and isinstance(node, dict):
            node[self._pick(["x", "\ud800", "budget", "inputs", "a" * 10_000])] = self._pick(VALUES)
        else:
            node[key] = self._pick(VALUES)
        return content

    def _change_bytes(self, data: bytes) -> bytes:
        result = bytearray(data)
        for _ in range(int(self._draw.integers(1, 4))):
            place = int(self._draw.integers(len(result) + 1))
            kind = int(self._draw.integers(4))
            if kind == 0 and place < len(result):
                result[place] = int(self._draw.integers(256))
            elif kind == 1:
                del result[place : place + int(self._draw.integers(1, 20))]
            elif kind == 2:
                result[place:place] = self._pick(WORDS)
            else:
                del result[max(place, 1) :]
        return bytes(result)

    def _route(self) -> str:
        return f"/v2/models/{self._name}/infer"

    def _count(self, stop: int) -> int:
        return int(self._draw.integers(stop))

    def _flip(self, share: float) -> bool:
        return bool(self._draw.random() < share)

    def _pick(self, choices: Any) -> Any:
        return choices[int(self._draw.integers(len(choices)))]

    @staticmethod
    def _dump(content: Any) -> bytes:
        return json.dumps(content).encode()


def encode(image: Any) -> str:
    """Return an image as a PNG file in base64."""
    file = BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def png_bomb(draw: np.random.Generator) -> bytes:
    """Return a PNG file whose header claims 50,000 x 50,000 pixels."""
    file = BytesIO()
    Image.new("1", (int(draw.integers(1, 2000)), 8)).save(file, "PNG")
    data = bytearray(file.getvalue())
    data[16:24] = struct.pack(">II", 50_000, 50_000)
    return bytes(data)


def truncated_jpeg(draw: np.random.Generator) -> bytes:
    """Return the beginning of a JPEG file."""
    file = BytesIO()
    Image.new("RGB", (64, 64), (200, 10, 90)).save(file, "JPEG")
    return file.getvalue()[: int(draw.integers(10, 600))]


def many_frames(draw: np.random.Generator) -> bytes:
    """Return a GIF file of hundreds of frames."""
    frames = [Image.new("P", (40, 40), int(shade)) for shade in range(200)]
    file = BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], loop=0)
    return file.getvalue()


def many_scans(draw: np.random.Generator, scans: int = 500, side: int = 2000) -> bytes:
    """Return a progressive JPEG file that repeats its last scan, each time over all pixels."""
    file = BytesIO()
    Image.new("RGB", (side, side)).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + b"\xff\xd9"


def broken_tiff(draw: np.random.Generator) -> bytes:
    """Return a TIFF file with changed bytes."""
    file = BytesIO()
    Image.new("RGB", (16, 16)).save(file, "TIFF", compression=["tiff_lzw", "jpeg"][int(draw.integers(2))])
    data = bytearray(file.getvalue())
    for place in draw.integers(4, len(data), 5):
        data[place] = int(draw.integers(256))
    return bytes(data)


def garbage(draw: np.random.Generator) -> bytes:
    """Return random bytes after the first bytes of an image format."""
    starts = [
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
        b"GIF89a",
        b"\xff\xd8\xff\xe0",
        b"BM",
        b"RIFF\xff\xff\xff\xffWEBPVP8 ",
    ]
    return starts[int(draw.integers(len(starts)))] + draw.bytes(200)


def large_webp(draw: np.random.Generator) -> bytes:
    """Return a WebP file of more pixels than a request may have."""
    file = BytesIO()
    Image.new("RGB", (8000, 2100)).save(file, "WEBP", quality=1, method=0)
    return file.getvalue()


def long_images() -> list[str]:
    """Return 256 small image files that become large when their shorter side is resized."""
    return [encode(np.zeros((2, 190, 3), np.uint8))] * 256
