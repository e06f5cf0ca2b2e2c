"""Serve a model and turn its dial while it runs: python examples/serve_and_turn_the_dial.py [ARTIFACT].

Without ARTIFACT, the demo's network is trained and fitted first, in a minute. The server is `offramp serve` in a
process of its own, on loopback. Requests name budgets of their own; then the operator moves the point of all that
name none. Needs `offramp[demo,serve]`.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import offramp
from offramp.demo import PREPROCESSING, digits, trained_networks


def fetch(address: str, body: dict | None = None) -> dict:
    """Return the JSON that an address answers."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(address, data), timeout=60) as response:
        return json.loads(response.read() or "{}")


def wait_until_ready(address: str, server: subprocess.Popen) -> None:
    """Return when the server answers requests."""
    while server.poll() is None:
        try:
            fetch(f"{address}/v2/health/ready")
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the server has ended")


data = digits()
artifact = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
if len(sys.argv) == 1:
    _, network = trained_networks(data.train)
    offramp.fit(network, data.train, data.validation, preprocessing=PREPROCESSING).save(artifact)

# Two free ports: one for requests, one for the operator.
with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
    port, admin_port = first.getsockname()[1], second.getsockname()[1]
address, admin = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin_port}"
command = [sys.executable, "-m", "offramp.cli", "serve", artifact, "--cost", "0.8"]
server = subprocess.Popen([*command, "--port", str(port), "--admin-port", str(admin_port)])
try:
    wait_until_ready(address, server)
    images = data.test.read(0, 64).inputs.tolist()
    print("budget of the request  mean cost  exits taken")
    for budget in (0.3, 0.5, 0.9, None):
        answer = fetch(f"{address}/predict", {"inputs": images} | ({} if budget is None else {"budget": budget}))
        rows = answer["predictions"]
        cost = sum(row["relative_cost"] for row in rows) / len(rows)
        print(f"{budget or 'none':>21}  {cost:9.2f}  {sorted({row['exit'] for row in rows})}")
    print("the operator lowers the point of requests without a budget:", fetch(f"{admin}/point", {"budget": 0.4}))
    rows = fetch(f"{address}/predict", {"inputs": images})["predictions"]
    print(f"{'none':>21}  {sum(row['relative_cost'] for row in rows) / len(rows):9.2f}")
finally:
    server.terminate()
    server.wait()
