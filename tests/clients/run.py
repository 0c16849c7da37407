#!/usr/bin/env python3
"""Real OpenAI clients against the built binaries.

    run.py --bin-dir target/release [--node DIR]

Starts engines and the sidecar on free ports, and has the Python client (imported here) and the Node client
(openai_node.mjs, with node_modules in DIR) each send all requests of asks.json three ways:

  alone     to the generation engine, without a handoff
  handoff   through the sidecar, by way of a context and a generation leg
  terminal  through the sidecar, to a context engine that makes the whole answer, so that there is no generation leg

whole, as a stream, and (chat) with the client's own stream helper. The objects that a client parses from an answer
through the sidecar have to equal those from the engine alone; compare.py lists what may differ. No request may leave
a KV cache behind or stay in flight. Errors have to be of the class, and have the members, that asks.json says.
"""

import argparse
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True  # nothing is left in the repository

import compare
import openai_python
from world import World, wait

HERE = os.path.dirname(os.path.abspath(__file__))


def read_asks():
    with open(os.path.join(HERE, "asks.json")) as f:
        table = json.load(f)
    for ask in table["answers"] + table["errors"]:
        body = {"model": "sim", **ask["ask"]}
        if ask["endpoint"] == "chat":
            body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
        if "tools" in body:
            # The stream helpers take strict tools only.
            body["tools"] = [{"type": "function", "function": {"name": name, "strict": True, "parameters": {
                "type": "object", "properties": {"text": {"type": "string"}}}}} for name in body["tools"]]
        ask["whole"] = body
        options = ask.get("stream_options", {"include_usage": True})
        ask["stream"] = {**body, "stream": True, **({} if options == "absent" else {"stream_options": options})}
        ask["headers"] = {**ask.get("headers", {}),
                          **({"x-sim-fault": json.dumps(ask["fault"])} if "fault" in ask else {})}
    return table


def python_client(base, headers, answers, errors):
    return {"answers": openai_python.answers(base, headers, answers),
            "errors": openai_python.errors(base, headers, errors)}


def node_client(modules):
    script = os.path.join(modules, "openai_node.mjs")
    with open(os.path.join(HERE, "openai_node.mjs")) as src, open(script, "w") as dst:
        dst.write(src.read())  # beside its node_modules

    def client(base, headers, answers, errors):
        ask = json.dumps({"base": base, "headers": headers, "answers": answers, "errors": errors})
        run = subprocess.run(["node", script], input=ask.encode(), stdout=subprocess.PIPE, timeout=120, check=True)
        return json.loads(run.stdout)

    return client


class Checks:
    """Says what is wrong as it comes, and counts."""

    def __init__(self):
        self.wrong = 0

    def __call__(self, what, check, *args):
        try:
            return check(*args)
        except compare.Wrong as wrong:
            self.wrong += 1
            print(f"WRONG  {what}: {wrong}")


def expected_counts(asks, way):
    """What the engines have to do for these requests."""
    sent = {ask["name"]: 3 if ask["endpoint"] == "chat" else 2 for ask in asks}
    ends = [ask["name"] for ask in asks
            if way == "terminal" and ask["finish"] != "length" or ask.get("ends_in_context")]
    ended = sum(sent[name] for name in ends)
    due = sum(sent.values()) - ended
    if way == "alone":
        return {"context legs": 0, "ended in the context step": 0, "handed over": 0, "generation legs": 0}
    return {"context legs": ended + due, "ended in the context step": ended, "handed over": due, "generation legs": due}


def run_client(name, client, world, table, checks):
    asks, got, alone = table["answers"], {}, {}
    for way, port, context in (("alone", world.generation, None), ("handoff", world.data, world.context),
                               ("terminal", world.data, world.whole)):
        headers = {"x-prefiller-host-port": f"127.0.0.1:{context}"} if context else {}
        before = world.counts()
        got = client(f"http://127.0.0.1:{port}/v1", headers, asks, [])["answers"]
        after = world.counts()
        counts = {what: after[what] - before[what] for what in after}
        checks(f"{name}, {way}", compare.same, "what the engines did", counts, expected_counts(asks, way))
        alone = alone or got
        compared = 0
        for ask in asks:
            what = f"{name}, {way}, {ask['name']}"
            checks(what, compare.check, ask, got[ask["name"]])
            if context:
                compared += checks(what, compare.equal, name, got[ask["name"]], alone[ask["name"]]) or 0
            if way == "terminal" and ask["endpoint"] == "chat" and ask["finish"] == "tool_calls":
                calls = got[ask["name"]]["whole"]["choices"][0]["message"]["tool_calls"]
                done = got[ask["name"]]["calls_done"]
                checks(what, compare.same, "calls told complete", done, list(range(len(calls))))
        print(f"{name}, {way}: {len(asks)} requests"
              + (f", {compared} parsed objects equal to those of the engine alone" if context else "")
              + f"; {counts['generation legs']} generation legs, {counts['ended in the context step']} answers that ended "
              "in the context step")

    for way, port in (("handoff", world.data), ("alone", world.generation)):
        headers = {"x-prefiller-host-port": f"127.0.0.1:{world.context}"} if way == "handoff" else {}
        failing = [ask for ask in table["errors"] if way in ask]
        failed = client(f"http://127.0.0.1:{port}/v1", headers, [], failing)["errors"]
        for ask in failing:
            # A worker's own errors are not of the API's shape, and each client reads them in its way.
            expected = ask[way][name] if isinstance(ask[way], dict) else ask[way]
            checks(f"{name}, {way}, {ask['name']}", compare.same, "errors", failed[ask["name"]], expected)
        print(f"{name}, {way}: {len(failing)} errors")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin-dir", required=True)
    ap.add_argument("--node", help="a folder with node_modules/openai")
    args = ap.parse_args()

    table, checks = read_asks(), Checks()
    clients = {"python": python_client}
    if args.node:
        clients["node"] = node_client(args.node)
    with World(args.bin_dir) as world:
        for name, client in clients.items():
            run_client(name, client, world, table, checks)
        # one handoff a client was refused by the generation worker on purpose
        nothing = {"KV caches held": len(clients), "requests in flight": 0}
        wait("the end of all requests", 10, lambda: world.left()["requests in flight"] == 0)
        checks("afterwards", compare.same, "what is left", world.left(), nothing)
    print(f"{checks.wrong} wrong" if checks.wrong else "all as it has to be")
    sys.exit(1 if checks.wrong else 0)


if __name__ == "__main__":
    main()
