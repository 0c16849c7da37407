"""Engines and the sidecar as processes, on free ports."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=5) as r:
        return r.read().decode()


def wait(what, seconds, check):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if check():
                return
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit(f"{what}: not within {seconds} s")


class World:
    """`context` makes one token as a context worker does, `whole` the whole answer, so that it ends there."""

    def __init__(self, bin_dir):
        self.bin_dir, self.all = bin_dir, []
        self.context, self.whole, self.generation, self.data, self.admin = (free_port() for _ in range(5))

    def __enter__(self):
        self.start("trtllm-sim", "--role", "context", "--port", self.context)
        self.start("trtllm-sim", "--role", "context", "--port", self.whole, "--whole-in-context")
        self.start("trtllm-sim", "--role", "generation", "--port", self.generation)
        self.start("disagg-sidecar", "--listen", f"127.0.0.1:{self.data}", "--admin-listen", f"127.0.0.1:{self.admin}",
                   "--generation-url", f"http://127.0.0.1:{self.generation}", "--log", "warn")
        for port in (self.context, self.whole, self.generation):
            wait("engine", 10, lambda: get(f"http://127.0.0.1:{port}/version"))
        wait("sidecar", 10, lambda: get(f"http://127.0.0.1:{self.admin}/readyz") is not None)
        return self

    def start(self, name, *args):
        command = [os.path.join(self.bin_dir, name), *map(str, args)]
        self.all.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))

    def __exit__(self, *_):
        for p in reversed(self.all):
            p.terminate()
        for p in self.all:
            try:
                p.wait(15)
            except subprocess.TimeoutExpired:
                p.kill()

    def counts(self):
        """What the engines have done so far."""
        of = {name: json.loads(get(f"http://127.0.0.1:{port}/sim/state"))
              for name, port in (("context", self.context), ("whole", self.whole), ("generation", self.generation))}
        return {
            "context legs": of["context"]["context_requests"] + of["whole"]["context_requests"],
            "ended in the context step": of["context"]["terminal"] + of["whole"]["terminal"],
            "handed over": of["context"]["pulls"] + of["whole"]["pulls"],
            "generation legs": of["generation"]["generation_requests"],
        }

    def left(self):
        """What must be nothing when no request is running."""
        metrics = get(f"http://127.0.0.1:{self.admin}/metrics")
        in_flight = re.search(r"^disagg_requests_in_flight (\S+)", metrics, re.M)
        states = [json.loads(get(f"http://127.0.0.1:{port}/sim/state")) for port in (self.context, self.whole)]
        return {
            "KV caches held": sum(state["kv_held"] for state in states),
            "requests in flight": float(in_flight[1]) if in_flight else None,
        }
