"""Serve a model and turn its dial while it runs: python examples/serve_and_turn_the_dial.py [ARTIFACT].

Without ARTIFACT, `offramp demo` makes one first, in a minute; the budgets below fit it. The server is `offramp serve`
in a process of its own, on loopback. Requests name budgets of their own; then the operator moves the point of all that
name none. Needs `offramp[demo,serve]`.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from offramp.demo import digits


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


offramp = [sys.executable, "-m", "offramp.cli"]
if len(sys.argv) > 1:
    artifact = sys.argv[1]
else:
    folder = tempfile.mkdtemp()
    subprocess.run([*offramp, "demo", "--out", folder], check=True)
    artifact = f"{folder}/artifact"

# Two free ports: one for requests, one for the operator.
with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
    port, admin_port = first.getsockname()[1], second.getsockname()[1]
address, admin = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin_port}"
server = subprocess.Popen(
    [*offramp, "serve", artifact, "--cost", "0.1", "--port", str(port), "--admin-port", str(admin_port)]
)
try:
    wait_until_ready(address, server)
    images = digits().test.read(0, 64).inputs.tolist()
    print("budget of the request  mean cost  exits taken")
    for budget in (0.03, 0.05, 0.1, None):
        answer = fetch(f"{address}/predict", {"inputs": images} | ({} if budget is None else {"budget": budget}))
        rows = answer["predictions"]
        cost = sum(row["relative_cost"] for row in rows) / len(rows)
        print(f"{budget or 'none':>21}  {cost:9.2f}  {sorted({row['exit'] for row in rows})}")
    print("the operator lowers the point of requests without a budget:", fetch(f"{admin}/point", {"budget": 0.05}))
    rows = fetch(f"{address}/predict", {"inputs": images})["predictions"]
    print(f"{'none':>21}  {sum(row['relative_cost'] for row in rows) / len(rows):9.2f}")
finally:
    server.terminate()
    server.wait()
