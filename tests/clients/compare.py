"""When two answers are the same, and what each has to be."""

# What differs between an answer through the sidecar and one of the generation engine alone, and why.
DIFFERS = {
    "id": "each worker counts its own; before G4 each chunk has another",
    "created": "the time",
}
# An engine alone has these in a whole answer, and they are null; through the sidecar they are not there.
INTERNAL = ("disaggregated_params", "prompt_token_ids", "prompt_token_ids_b64")
# Node's stream helper does not know this member and keeps the last chunk's, so it shows how the text was cut into
# chunks. The chunks themselves are compared with it.
LAST_CHUNK_ONLY = {"node": ("reasoning_content",)}


class Wrong(Exception):
    """An answer that is not what it has to be."""


def need(truth, what):
    if not truth:
        raise Wrong(what)


def same(what, one, other):
    need(one == other, f"{what} differ:\n    {one}\n    {other}")


def comparable(whole, alone):
    """A whole answer without what differs."""
    whole = {key: value for key, value in whole.items() if key not in DIFFERS}
    choices = [dict(choice) for choice in whole["choices"]]
    for part in (whole, *choices):
        for key in INTERNAL:
            need(part.get(key) is None and (alone or key not in part), f"{key} is there")
            part.pop(key, None)
    return {**whole, "choices": choices}


def helped(client, final):
    """The answer that a stream helper put together, without what differs."""
    final = {key: value for key, value in final.items() if key not in DIFFERS}
    choices = [dict(choice) for choice in final["choices"]]
    for choice in choices:
        unknown = LAST_CHUNK_ONLY.get(client, ())
        choice["message"] = {key: value for key, value in choice["message"].items() if key not in unknown}
    return {**final, "choices": choices}


def gathered(chunks):
    """What the chunks of a stream come to; `before` is the usage that comes with the role, before any token."""
    out = {"choice": {}, "calls": {}, "logprobs": {}, "usage": None, "before": None}
    with_usage, heads = [], []
    for chunk in chunks:
        heads.append({k: v for k, v in chunk.items() if k not in DIFFERS and k not in ("choices", "usage")})
        out["usage"] = chunk.get("usage") or out["usage"]
        with_usage.append(bool(chunk.get("usage")))
        for choice in chunk["choices"]:
            need("finish_reason" not in out["choice"], "a chunk after the last")
            delta = choice.get("delta", choice)
            if "role" in delta:
                out["before"] = chunk.get("usage")
            for call in delta.get("tool_calls") or []:
                into(out["calls"].setdefault(call["index"], {}), call)
            into(out["choice"], {k: v for k, v in delta.items() if k not in ("tool_calls", "logprobs", "index")})
            into(out["logprobs"], choice.get("logprobs") or {})
            for key in ("finish_reason", "stop_reason"):
                if choice is not delta and choice.get(key) is not None:
                    out["choice"][key] = choice[key]
    need(all(head == heads[0] for head in heads), "the head of the chunks changes")
    end = not chunks[-1]["choices"]
    told = "never" if not any(with_usage) else "throughout" if all(with_usage) else "at the end"
    need(told != "at the end" or (end and sum(with_usage) == 1), "usage in some chunks only")
    calls = [call for _, call in sorted(out["calls"].items())]
    return {**out, "calls": calls, "head": heads[0], "told": told}


def into(all_of, more):
    """Adds what a chunk adds: texts and lists are continued, all else is said once."""
    for key, value in more.items():
        if value is None:
            continue
        if isinstance(value, dict):
            into(all_of.setdefault(key, {}), value)
        elif key in all_of and isinstance(value, (str, list)) and key != "type":
            all_of[key] = all_of[key] + value
        else:
            all_of[key] = value


def spoken(whole):
    """What a whole answer says, as `gathered` has it of a stream."""
    [choice] = whole["choices"]
    said = choice.get("message", choice)
    outer = ("tool_calls", "logprobs", "index", "finish_reason", "stop_reason", "context_logits", "message")
    texts = {key: value for key, value in said.items() if key not in outer and key not in INTERNAL and value is not None}
    for key in ("finish_reason", "stop_reason"):
        if choice.get(key) is not None:
            texts[key] = choice[key]
    return {
        "choice": texts,
        "calls": [{**known(call), "index": at} for at, call in enumerate(said.get("tool_calls") or [])],
        "logprobs": known(choice.get("logprobs") or {}),
    }


def known(value):
    """Without the members that are null."""
    if isinstance(value, dict):
        return {key: known(part) for key, part in value.items() if part is not None}
    return [known(part) for part in value] if isinstance(value, list) else value


def check(ask, answer):
    """That an answer is of the shape that its request is there for, and that its stream and its whole say the same."""
    whole, stream = answer["whole"], gathered(answer["chunks"])
    said = spoken(whole)
    same("stream and whole", known({key: stream[key] for key in said}), said)
    same("finish reasons", said["choice"]["finish_reason"], ask["finish"])
    same("usage told", stream["told"], ask.get("usage", "at the end"))
    if stream["told"] != "never":
        same("usages", known(stream["usage"]), known(whole["usage"]))
    found = {**said["choice"], "tool_calls": said["calls"], "logprobs": said["logprobs"], "usage": whole["usage"]}
    for path in ask.get("has", []):
        need(at(found, path) not in (None, "", [], {}), f"{path} is missing")
    for path in ask.get("has_not", []):
        need(at(found, path) in (None, "", [], {}), f"{path} is there")
    if "fault" in ask and "say" in ask["fault"]:
        same("texts", found.get("content", found.get("text")), ask["fault"]["say"])


def at(value, path):
    for step in path.split("."):
        if isinstance(value, list):
            value = value[int(step)] if int(step) < len(value) else None
        elif value is not None:
            value = value.get(step)
    return value


def equal(client, one, alone):
    """That an answer through the sidecar is that of the engine alone; returns how many objects were compared."""
    same("whole answers", comparable(one["whole"], alone=False), comparable(alone["whole"], alone=True))
    same("streams", gathered(one["chunks"]), gathered(alone["chunks"]))
    if "helper" not in alone:
        return 2
    same("stream helpers", helped(client, one["helper"]), helped(client, alone["helper"]))
    return 3
