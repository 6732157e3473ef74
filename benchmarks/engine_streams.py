"""Does the simulated engine keep its pace with many streams? `python benchmarks/engine_streams.py`.

Starts a server whose steps take exactly --step-ms, opens --streams streams at once and measures on the
client's side how far the time per output token of each stream is from that, and how much of a core the server
used meanwhile. The client only reads bytes. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import uvloop


class Stream(asyncio.Protocol):
    """One request; notes when bytes arrive after the head of the answer."""

    def __init__(self, request: bytes, done: asyncio.Semaphore) -> None:
        self.arrivals_s: list[float] = []
        self._request = request
        self._done = done
        self._head_seen = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def start(self) -> None:
        assert self._transport is not None
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._head_seen:
            self._head_seen = True
            if b"data: " not in data:
                return
        self.arrivals_s.append(time.perf_counter())
        if data.endswith(b"0\r\n\r\n"):
            self._done.release()


def cpu_seconds(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        match = re.search(rb"^process_cpu_seconds_total (\S+)", answer.read(), re.MULTILINE)
    assert match is not None
    return float(match.group(1))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_server(port: int, streams: int, step_ms: float) -> subprocess.Popen[bytes]:
    hardware = {
        "startup_s": 0.0,
        "api_ms_per_request": 0.0,
        "step_time": {
            "base_ms": step_ms,
            "per_sequence_ms": 0,
            "per_prefill_token_ms": 0,
            "per_prefill_token_pair_ms": 0,
            "per_kv_token_ms": 0,
            "eager_ms": 0,
            "noise": 0,
        },
        "gpu": {"memory_gib": 80},
    }
    command = [sys.executable, "-m", "kneekeeper.engine", "serve", "bench", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--max-num-seqs", str(streams), "--max-num-batched-tokens", "16384"]
    environment = os.environ | {"KNEEKEEPER_SIM": json.dumps(hardware)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def wait_until_up(url: str) -> None:
    for _ in range(100):
        try:
            urllib.request.urlopen(f"{url}/health").close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the server did not come up")


async def measure(port: int, streams: int, tokens: int, step_ms: float) -> dict[str, float]:
    wanted = {"prompt": [1] * 8, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    # As the load agent asks, and the dearer form: each chunk carries its own count.
    wanted["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    body = json.dumps(wanted).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: bench\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    done = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()
    protocols = [Stream(head + body, done) for _ in range(streams)]
    for protocol in protocols:
        await loop.create_connection(lambda protocol=protocol: protocol, "127.0.0.1", port)  # type: ignore[misc]
    url = f"http://127.0.0.1:{port}"
    before = await asyncio.to_thread(cpu_seconds, url)
    client_before = time.process_time()
    started_s = time.perf_counter()
    for protocol in protocols:
        protocol.start()
    for _ in protocols:
        await done.acquire()
    wall_s = time.perf_counter() - started_s
    client_cpu_s = time.process_time() - client_before
    server_cpu_s = await asyncio.to_thread(cpu_seconds, url) - before
    tpot_ms = np.array(
        [1000 * (p.arrivals_s[-1] - p.arrivals_s[0]) / (tokens - 1) for p in protocols if len(p.arrivals_s) > 1]
    )
    gaps_ms = 1000 * np.concatenate([np.diff(p.arrivals_s) for p in protocols])
    return {
        "streams": streams,
        "tokens_per_stream": tokens,
        "step_ms": step_ms,
        "wall_s": round(wall_s, 3),
        "tokens_per_s": round(streams * tokens / wall_s),
        "tpot_mean_ms": round(float(tpot_ms.mean()), 3),
        "tpot_error_percent": round(100 * float(tpot_ms.mean() / step_ms - 1), 2),
        "tpot_worst_error_percent": round(100 * float(np.abs(tpot_ms / step_ms - 1).max()), 2),
        "gap_p99_ms": round(float(np.percentile(gaps_ms, 99)), 2),
        "chunks_per_token": round((len(gaps_ms) + streams) / (streams * tokens), 3),
        "server_cpu_share": round(server_cpu_s / wall_s, 3),
        "client_cpu_share": round(client_cpu_s / wall_s, 3),
        "load_average": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=250)
    parser.add_argument("--step-ms", type=float, default=20.0)
    options = parser.parse_args()
    port = free_port()
    server = start_server(port, options.streams, options.step_ms)
    try:
        wait_until_up(f"http://127.0.0.1:{port}")
        print(json.dumps(uvloop.run(measure(port, options.streams, options.tokens, options.step_ms))))
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    main()
