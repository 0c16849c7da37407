#!/usr/bin/env python3
"""Real OpenAI clients against the built binaries.

    run.py --bin-dir target/release [--node DIR]

Starts a context engine, a generation engine and the sidecar on free ports, then has the Python client (imported here)
and the Node client (openai_node.mjs, with node_modules in DIR) each do a streaming and a non-streaming chat, a tool
call and an error through the sidecar. What a client gets is compared with what it gets from the generation engine
alone, without a handoff. Afterwards no KV cache may be held and no request be in flight.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))


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


class Processes:
    def __init__(self, bin_dir):
        self.bin_dir, self.all = bin_dir, []

    def start(self, name, *args):
        p = subprocess.Popen([os.path.join(self.bin_dir, name), *args], stdin=subprocess.DEVNULL)
        self.all.append(p)
        return p

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in reversed(self.all):
            p.terminate()
        for p in self.all:
            try:
                p.wait(15)
            except subprocess.TimeoutExpired:
                p.kill()


def python_client(base, headers):
    """What the Python client makes of four requests."""
    import openai

    client = openai.OpenAI(base_url=base, api_key="none", default_headers=headers, max_retries=0)
    ask = {"model": "sim", "messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 24}
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}
    out = {}

    stream = client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    text, finish, usage = "", None, None
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
        usage = chunk.usage.model_dump() if chunk.usage else usage
    out["stream"] = {"text": text, "finish": finish, "usage": usage}

    whole = client.chat.completions.create(**ask)
    choice = whole.choices[0]
    out["whole"] = {"text": choice.message.content, "finish": choice.finish_reason, "usage": whole.usage.model_dump()}

    called = client.chat.completions.create(
        model="sim", messages=[{"role": "user", "content": "#tool"}], tools=[tool], tool_choice="auto", max_tokens=24)
    call = called.choices[0].message.tool_calls[0].function
    out["tool"] = {"name": call.name, "arguments": call.arguments, "finish": called.choices[0].finish_reason}

    try:
        client.chat.completions.create(**ask, n=2 if headers else 1, extra_body={} if headers else {"no_such_field": 1})
        out["error"] = "none"
    except openai.BadRequestError as e:
        out["error"] = {"status": e.status_code, "code": e.code if headers else "-"}
    return out


def node_client(base, headers, modules):
    """What the Node client makes of the same four requests."""
    script = os.path.join(modules, "openai_node.mjs")
    with open(os.path.join(HERE, "openai_node.mjs")) as src, open(script, "w") as dst:
        dst.write(src.read())  # beside its node_modules
    run = subprocess.run(["node", script, base, json.dumps(headers)], stdout=subprocess.PIPE, timeout=60, check=True)
    return json.loads(run.stdout)


def without_cached(result):
    """How many prompt tokens were cached is the workers' own affair and differs between them."""
    result = json.loads(json.dumps(result))
    for part in result.values():
        if isinstance(part, dict) and part.get("usage"):
            part["usage"].pop("prompt_tokens_details", None)
    return result


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--node", help="a folder with node_modules/openai")
    args = ap.parse_args()

    ctx, gen, data, admin = (free_port() for _ in range(4))
    with Processes(args.bin_dir) as run:
        run.start("trtllm-sim", "--role", "context", "--port", str(ctx))
        run.start("trtllm-sim", "--role", "generation", "--port", str(gen))
        run.start("disagg-sidecar", "--listen", f"127.0.0.1:{data}", "--admin-listen", f"127.0.0.1:{admin}",
                  "--generation-url", f"http://127.0.0.1:{gen}", "--log", "warn")
        for port in (ctx, gen):
            wait("engine", 10, lambda: get(f"http://127.0.0.1:{port}/version"))
        wait("sidecar", 10, lambda: get(f"http://127.0.0.1:{admin}/readyz") is not None)

        handoff = {"x-prefiller-host-port": f"127.0.0.1:{ctx}"}
        clients = {"python": python_client}
        if args.node:
            clients["node"] = lambda base, headers: node_client(base, headers, args.node)
        bad = 0
        for name, client in clients.items():
            got = client(f"http://127.0.0.1:{data}/v1", handoff)
            alone = client(f"http://127.0.0.1:{gen}/v1", {})
            got_error, _ = got.pop("error"), alone.pop("error")
            checks = {
                "equals the engine alone": without_cached(got) == without_cached(alone),
                "error has status and code": got_error == {"status": 400, "code": "unsupported_request"},
                "stream has text": len(got["stream"]["text"]) > 10,
                "stream and whole agree": got["stream"]["text"] == got["whole"]["text"],
                "tool call": got["tool"]["name"] == "look_up" and got["tool"]["finish"] == "tool_calls",
            }
            for what, ok in checks.items():
                print(f"{name}: {what}: {'ok' if ok else 'WRONG'}")
                bad += not ok
            if not all(checks.values()):
                print("  through the sidecar:", json.dumps(got), got_error)
                print("  the engine alone:   ", json.dumps(alone))

        state = json.loads(get(f"http://127.0.0.1:{ctx}/sim/state"))
        in_flight = re.search(r"^disagg_requests_in_flight (\S+)", get(f"http://127.0.0.1:{admin}/metrics"), re.M)
        for what, ok in {"no KV cache held": state["kv_held"] == 0, "handed over": state["pulls"] > 0,
                         "nothing in flight": in_flight and float(in_flight[1]) == 0}.items():
            print(f"afterwards: {what}: {'ok' if ok else 'WRONG'}")
            bad += not ok
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
