// @anthropic-ai/sdk: messages, plainly and by the stream helper.
import Anthropic from "@anthropic-ai/sdk";
import { run } from "./harness.mjs";

const question = (prompt) => ({
  model: "claude-sonnet-4-5",
  max_tokens: 1024,
  messages: [{ role: "user", content: prompt }],
});

async function* texts(events) {
  for await (const event of events) {
    if (event.type === "content_block_delta") yield event.delta.text;
  }
}

await run({
  messages: (url, key) => {
    const { messages } = new Anthropic({ baseURL: url, apiKey: key });
    return {
      ask: async (prompt) => (await messages.create(question(prompt))).content[0].text,
      async *stream(prompt) {
        yield* texts(await messages.create({ ...question(prompt), stream: true }));
      },
    };
  },
  "messages, stream helper": (url, key) => {
    const { messages } = new Anthropic({ baseURL: url, apiKey: key });
    return {
      async *stream(prompt) {
        const events = messages.stream(question(prompt));
        yield* texts(events);
        await events.finalMessage();
      },
    };
  },
});
