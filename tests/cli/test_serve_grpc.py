"""`offramp serve --grpc-port`, in a process of its own."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import numpy as np
import pytest

from offramp.serve._messages import MESSAGES, SERVICE
from tests.cli.workshop import MODELS


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@pytest.mark.slow
def test_answers_over_grpc_until_it_is_told_to_stop(workshop: Path, artifact: Path) -> None:
    ports = free_port(), free_port()
    line = [sys.executable, "-m", "offramp.cli", "serve", str(artifact), "--cost", "0.9", "--name", "shapes"]
    line += ["--trust", f"{MODELS}:make", "--port", str(ports[0]), "--grpc-port", str(ports[1])]
    server = subprocess.Popen(line, cwd=workshop, env={**os.environ, "PYTHONWARNINGS": "default"})
    try:
        with grpc.insecure_channel(f"127.0.0.1:{ports[1]}") as channel:
            infer = channel.unary_unary(
                f"/{SERVICE}/ModelInfer",
                request_serializer=MESSAGES["ModelInferRequest"].SerializeToString,
                response_deserializer=MESSAGES["ModelInferResponse"].FromString,
            )
            numbers = np.zeros((2, 16), np.float32)
            tensor = {"name": "input", "datatype": "FP32", "shape": numbers.shape}
            request = MESSAGES["ModelInferRequest"](
                model_name="shapes", inputs=[tensor], raw_input_contents=[numbers.tobytes()]
            )
            response = infer(request, timeout=120, wait_for_ready=True)
            assert list(response.outputs[0].shape) == [2]
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) in (0, -signal.SIGTERM)
    finally:
        server.kill()
        server.wait()
