// What the Node client makes of a streaming and a non-streaming chat, a tool call and an error. See run.py.
import OpenAI from "openai";

const [base, headers] = [process.argv[2], JSON.parse(process.argv[3])];
const handoff = Object.keys(headers).length > 0;
const client = new OpenAI({ baseURL: base, apiKey: "none", defaultHeaders: headers, maxRetries: 0 });
const ask = {
  model: "sim",
  messages: [{ role: "user", content: "What is the capital of France?" }],
  max_tokens: 24,
};
const tool = { type: "function", function: { name: "look_up", parameters: { type: "object", properties: {} } } };
const out = {};

let [text, finish, usage] = ["", null, null];
const stream = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } });
for await (const chunk of stream) {
  for (const choice of chunk.choices) {
    text += choice.delta.content ?? "";
    finish = choice.finish_reason ?? finish;
  }
  usage = chunk.usage ?? usage;
}
out.stream = { text, finish, usage };

const whole = await client.chat.completions.create(ask);
const [choice] = whole.choices;
out.whole = { text: choice.message.content, finish: choice.finish_reason, usage: whole.usage };

const called = await client.chat.completions.create({
  model: "sim",
  messages: [{ role: "user", content: "#tool" }],
  tools: [tool],
  tool_choice: "auto",
  max_tokens: 24,
});
const call = called.choices[0].message.tool_calls[0].function;
out.tool = { name: call.name, arguments: call.arguments, finish: called.choices[0].finish_reason };

try {
  await client.chat.completions.create({ ...ask, ...(handoff ? { n: 2 } : { no_such_field: 1 }) });
  out.error = "none";
} catch (error) {
  if (!(error instanceof OpenAI.BadRequestError)) throw error;
  out.error = { status: error.status, code: handoff ? error.code : "-" };
}
console.log(JSON.stringify(out));
