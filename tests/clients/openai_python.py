"""What the OpenAI Python client makes of requests. The Node client does the same in openai_node.mjs."""

import openai


def answers(base, headers, asks):
    """The parsed objects of each request: whole, the chunks of a stream, and what the client's stream helper makes of
    a stream (chat only)."""
    client = openai.OpenAI(base_url=base, api_key="none", default_headers=headers, max_retries=0)
    return {ask["name"]: answer(client, ask) for ask in asks}


def answer(client, ask):
    chat = ask["endpoint"] == "chat"
    of_endpoint = client.chat.completions if chat else client.completions
    asked = {"extra_headers": ask["headers"]}
    out = {
        "whole": of_endpoint.create(**parts(ask["whole"], chat), **asked).model_dump(),
        "chunks": [chunk.to_dict() for chunk in of_endpoint.create(**parts(ask["stream"], chat), **asked)],
    }
    if chat:
        arguments = parts(ask["stream"], chat)
        del arguments["stream"]
        if "tools" in ask["stream"]:
            arguments["tools"] = ask["stream"]["tools"]
        done = []
        with of_endpoint.stream(**arguments, **asked) as stream:
            for event in stream:
                if event.type == "tool_calls.function.arguments.done":
                    done.append(event.index)
            out["helper"] = final(stream)
        out["calls_done"] = done
    return out


def final(stream):
    """The helper's final object; where it raises, what it had by then, and what it raised."""
    try:
        return stream.get_final_completion().model_dump()
    except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError) as e:
        return {**stream.current_completion_snapshot.model_dump(), "raised": type(e).__name__}


def parts(body, chat):
    """A body as arguments: what is the worker's own has to go in extra_body, and anything may."""
    named = ["model", "messages" if chat else "prompt", "stream"]
    arguments = {key: body[key] for key in named if key in body}
    rest = {key: value for key, value in body.items() if key not in named}
    return {**arguments, "extra_body": rest}


def errors(base, headers, asks):
    """The class and members of the error that each request raises."""
    client = openai.OpenAI(base_url=base, api_key="none", default_headers=headers, max_retries=0)
    out = {}
    for ask in asks:
        chat = ask["endpoint"] == "chat"
        of_endpoint = client.chat.completions if chat else client.completions
        try:
            of_endpoint.create(**parts(ask["whole"], chat), extra_headers=ask["headers"])
            out[ask["name"]] = None
        except openai.APIStatusError as e:
            out[ask["name"]] = [type(e).__name__, e.status_code, e.code, e.param, e.type]
    return out
