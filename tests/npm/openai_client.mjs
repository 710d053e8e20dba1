// The official client for Node, unchanged, against a gateway: what a program of that kind does, as one JSON object.
import OpenAI, { APIError } from "openai";

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const said = (content) => [{ role: "user", content }];
const look = { name: "look", parameters: { type: "object", properties: {} } };
const seen = {};

async function failure(asking) {
  try {
    await asking;
    return "no error";
  } catch (error) {
    return error instanceof APIError ? [error.constructor.name, error.status, error.code] : String(error);
  }
}

seen.models = (await client.models.list()).data.map((each) => each.id);
const chat = (more, options) => client.chat.completions.create({ model: "main", ...more }, options);
seen.chat = (await chat({ messages: said("hello") })).choices[0].message.content;
seen.stream = "";
for await (const chunk of await chat({ messages: said("hello"), stream: true, stream_options: { include_usage: true } })) {
  seen.stream += chunk.choices[0]?.delta?.content ?? "";
  seen.tokens = chunk.usage?.total_tokens ?? seen.tokens;
}

const tools = [{ type: "function", function: look }];
const asked = (await chat({ messages: said("call"), tools })).choices[0];
const call = asked.message.tool_calls[0];
const result = { role: "tool", tool_call_id: call.id, content: "rain" };
seen.asked = [asked.finish_reason, call.function.name];
seen.told = (await chat({ messages: [...said("call"), asked.message, result], tools })).choices[0].message.content;

const first = await client.responses.create({ model: "main", input: "hello" });
seen.response = first.output_text;
seen.continued = (await client.responses.create({ model: "main", input: "seen", previous_response_id: first.id })).output_text;
seen.again = (await client.responses.retrieve(first.id)).output_text;
const final = await client.responses.stream({ model: "main", input: "hello" }).finalResponse();
seen.streamed = final.output_text;

const keyed = { headers: { "Idempotency-Key": "from-node" } };
const twice = [await chat({ messages: said("hello") }, keyed), await chat({ messages: said("hello") }, keyed)];
seen.same = twice[0].id === twice[1].id;
seen.errors = [
  await failure(chat({ messages: said("bye") }, keyed)),
  await failure(client.chat.completions.create({ model: "gpt", messages: said("x") })),
  await failure(chat({ messages: said("x"), n: 2 })),
  await failure(new OpenAI({ baseURL, apiKey: "sk-wrong", maxRetries: 0 }).models.list()),
];
console.log(JSON.stringify(seen));
