"""How many predictions a server answers in a second, and how long each takes, with photos batched and one at a time.

    python benchmarks/serving.py --data-root DIR                    # table: 1, 8 and 32 clients
    python benchmarks/serving.py --data-root DIR --soak 10          # minutes of lessons and predictions at once
    python benchmarks/serving.py --fuzz 10000                       # requests made up from openapi.json (schemathesis)

`DIR` holds `pacs`, of which a model on efficientnet-lite0 is taught four classes. Servers listen at 127.0.0.1; the load
is bounded by the numbers given. Batched and one at a time take turns, so that whatever else the machine does hits both.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np

CLASSES = ("dog", "elephant", "giraffe", "guitar")
TAUGHT = 10  # photos of each
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
SERVERS: dict[str, list[str]] = {"batched": [], "one at a time": ["--batch-ms", "0"]}


class Served:
    """A server in a process of its own."""

    def __init__(self, model: Path, *arguments: str) -> None:
        program = str(Path(sys.executable).with_name("efcil"))
        command = [program, "serve", str(model), "--port", "0", "--json", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # whatever fails: who reads what this prints waits for it, too
        assert self.process.stdout is not None
        self.address: str = json.loads(self.process.stdout.readline())["address"]
        self.port = int(self.address.rpartition(":")[2])

    def memory(self) -> float:
        """Megabytes that the server's own process holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def request(photo: bytes) -> bytes:
    """One prediction as it goes over the line."""
    head = b'--edge\r\nContent-Disposition: form-data; name="images"; filename="a.jpg"\r\n\r\n'
    body = head + photo + b"\r\n--edge--\r\n"
    lines = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    return f"{lines}Content-Type: multipart/form-data; boundary=edge\r\n\r\n".encode() + body


async def ask(port: int, requests: list[bytes], seconds: list[float]) -> None:
    """One client: the next question once the last is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for sent in requests:
        begun = time.perf_counter()
        writer.write(sent)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        await reader.readexactly(int(length[1]))
        seconds.append(time.perf_counter() - begun)
    writer.close()


async def load(port: int, photos: list[bytes], clients: int, count: int) -> tuple[float, list[float]]:
    """Requests in a second, and the seconds of each."""
    each = max(1, count // clients)
    seconds: list[float] = []
    plans = [[request(photos[(k + i) % len(photos)]) for i in range(each)] for k in range(clients)]
    begun = time.perf_counter()
    await asyncio.gather(*(ask(port, plan, seconds) for plan in plans))
    return each * clients / (time.perf_counter() - begun), seconds


def speeds(model: Path, photos: list[bytes], args: argparse.Namespace) -> None:
    """The table."""
    servers = {}
    for place, (name, arguments) in enumerate(SERVERS.items()):
        own = model.with_name(f"{place}.efcil")  # a model has one server
        own.write_bytes(model.read_bytes())
        servers[name] = Served(own, *arguments)
    for server in servers.values():
        asyncio.run(load(server.port, photos, 2, 8))  # warm
    print("| clients | server | requests/s | p50 ms | p99 ms |\n|---:|---|---:|---:|---:|")
    for clients in args.clients:
        rates: dict[str, list[float]] = {name: [] for name in servers}
        times: dict[str, list[float]] = {name: [] for name in servers}
        for _ in range(args.rounds):
            for name, server in servers.items():
                rate, seconds = asyncio.run(load(server.port, photos, clients, args.requests))
                rates[name].append(rate)
                times[name] += seconds
        for name in servers:
            low, high = np.percentile(np.array(times[name]) * 1000, [50, 99])
            print(f"| {clients} | {name} | {median(rates[name]):.1f} | {low:.0f} | {high:.0f} |", flush=True)
    for server in servers.values():
        server.stop()


def soak(model: Path, photos: list[bytes], args: argparse.Namespace) -> None:
    """Lessons and predictions at once, and at the end a count of what came of them: nothing may be lost."""
    server = Served(model, "--limit", "waiting=4")
    until, taught, memory = time.monotonic() + args.soak * 60, Counter[str](), [server.memory()]
    asked: list[float] = []

    async def asking() -> None:
        while time.monotonic() < until:
            await load(server.port, photos, 4, 40)
            asked.extend([0.0] * 40)
            memory.append(server.memory())

    async def teaching() -> None:
        form = [("images", ("a.jpg", photo)) for photo in photos[:5]]
        async with httpx.AsyncClient(base_url=server.address, timeout=120, trust_env=False) as client:
            while time.monotonic() < until:
                name = f"class {sum(taught.values()) % 8}"
                answer = await client.post("/lessons", data={"name": name}, files=form)
                assert answer.status_code == 202, answer.text
                lesson = answer.json()
                while lesson["status"] in ("waiting", "running"):
                    await asyncio.sleep(0.2)
                    lesson = (await client.get(answer.headers["location"])).json()
                taught[lesson["status"]] += 1
            rows = (await client.get("/classes")).json()["classes"]
            kept = (await client.get("/lessons")).json()["lessons"]
            photos_kept = sum(row["photos"] for row in rows if row["class"].startswith("class "))
            assert photos_kept == 5 * taught["done"], (photos_kept, taught)
            assert Counter(row["status"] for row in kept) == taught

    async def both() -> None:
        await asyncio.gather(asking(), teaching())

    asyncio.run(both())
    code = server.stop()
    print(f"{args.soak:g} minutes: {len(asked)} predictions, all answered; lessons {dict(taught)}, all in the list,")
    print("every photo counted in the model; memory in MB at first and after each tenth of the time:")
    tenths = [memory[len(memory) * part // 10] for part in range(1, 10)]
    print(f"{' '.join(f'{held:.0f}' for held in [memory[0], *tenths, memory[-1]])}; exit code {code}")


def fuzz(model: Path, args: argparse.Namespace) -> int:
    """Let schemathesis make up requests from the server's own description; no answer may be a 5xx."""
    server = Served(model, "--limit", "seconds=30", "--limit", "lessons=1000000")
    before, sent, code, seed, highest = server.memory(), 0, 0, 0, 0.0
    while sent < args.fuzz and code == 0:
        share = max(1, min(args.fuzz - sent, 3000) // 5 // args.at_once)  # five calls take what can be made up
        running = []
        for _ in range(args.at_once):
            command = [
                *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.address}/openapi.json"),
                *("--url", server.address, "--checks", CHECKS, "--max-examples", str(share), "--mode", "all"),
                *("--phases", "examples,coverage,fuzzing", "--seed", str(seed), "--no-color"),
                *("--suppress-health-check", "all", "--request-timeout", "60"),
            ]
            folder = tempfile.mkdtemp(dir=model.parent)  # it leaves folders of its own
            environment = {**os.environ, "COLUMNS": "120"}
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment))
            seed += 1
        for process in running:
            said, _ = process.communicate()
            if process.returncode:
                code = process.returncode
                print(said[-6000:])
        sent = int(answered(server))
        highest = max(highest, server.memory())
        print(f"{sent} requests, {server.memory():.0f} MB", flush=True)
    statuses = answered(server, by_status=True)
    bad = {status: count for status, count in statuses.items() if status.startswith("5") or status == "0"}
    print(f"{sent} requests: answers {dict(sorted(statuses.items()))}; {sum(bad.values())} of them 5xx;")
    print(f"memory of the server {before:.0f} MB at first, {highest:.0f} MB at most; exit code {server.stop()}")
    return code or int(bool(bad)) or int(highest - before > args.growth_mb)


def answered(server: Served, by_status: bool = False) -> Any:
    """How many requests the server itself has counted."""
    text = httpx.get(f"{server.address}/metrics", trust_env=False, timeout=60).text
    found: Counter[str] = Counter()
    for status, count in re.findall(r'efcil_requests_total\{[^}]*status="(\d+)"\} ([\d.e+]+)', text):
        found[status] += int(float(count))
    return dict(found) if by_status else sum(found.values())


def taught_model(path: Path, root: Path) -> list[bytes]:
    """A model of photos, and other photos to ask about."""
    from efcil.teaching.new import new_classifier

    folders = [root / "pacs" / "photo" / name for name in CLASSES]
    files = [sorted(folder.iterdir()) for folder in folders]
    paths = [str(path) for own in files for path in own[:TAUGHT]]
    names = [name for name in CLASSES for _ in range(TAUGHT)]
    classifier = new_classifier()
    classifier.progress = False
    classifier.partial_fit(paths, names).save(path)
    return [path.read_bytes() for own in files for path in own[TAUGHT : TAUGHT + 10]]


def small_model(path: Path) -> None:
    """A model that learns in no time, for requests that are about the server alone."""
    from efcil import IncrementalClassifier

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (24, 16, 16, 3), np.uint8)
    classifier = IncrementalClassifier("lda", width=4, stem_stride=2, epochs=1, image_size=16, progress=False)
    classifier.partial_fit(pixels, np.repeat(["cat", "dog"], 12)).save(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=128, help="in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak", type=float, default=0, metavar="MINUTES")
    parser.add_argument("--fuzz", type=int, default=0, metavar="REQUESTS")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="processes that make up requests")
    parser.add_argument("--growth-mb", type=float, default=300, help="of memory that fuzzing may cost")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.efcil")
        if args.fuzz:
            small_model(model)
            return fuzz(model, args)
        if not args.data_root:
            parser.error("--data-root is missing")
        photos = taught_model(model, args.data_root)
        (soak if args.soak else speeds)(model, photos, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
