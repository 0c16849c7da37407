// What the OpenAI Node client makes of requests. The Python client does the same in openai_python.py.
//
// Reads {"base", "headers", "answers", "errors"} from its input, and writes the parsed objects as JSON.
import OpenAI from "openai";
import { readFileSync } from "node:fs";

const { base, headers, answers, errors } = JSON.parse(readFileSync(0, "utf8"));
const client = new OpenAI({ baseURL: base, apiKey: "none", defaultHeaders: headers, maxRetries: 0 });
const endpoints = { chat: client.chat.completions, completions: client.completions };

async function answer(ask) {
  const endpoint = endpoints[ask.endpoint];
  const asked = { headers: ask.headers };
  const out = { whole: await endpoint.create(ask.whole, asked), chunks: [] };
  for await (const chunk of await endpoint.create(ask.stream, asked)) out.chunks.push(chunk);
  if (ask.endpoint === "chat") {
    const stream = endpoint.stream(ask.stream, asked);
    out.calls_done = [];
    stream.on("tool_calls.function.arguments.done", (call) => out.calls_done.push(call.index));
    out.helper = await stream.finalChatCompletion();
  }
  return out;
}

async function failure(ask) {
  try {
    await endpoints[ask.endpoint].create(ask.whole, { headers: ask.headers });
    return null;
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error;
    const of = (value) => value ?? null;
    return [error.constructor.name, error.status, of(error.code), of(error.param), of(error.type)];
  }
}

const out = { answers: {}, errors: {} };
for (const ask of answers) out.answers[ask.name] = await answer(ask);
for (const ask of errors) out.errors[ask.name] = await failure(ask);
console.log(JSON.stringify(out));
