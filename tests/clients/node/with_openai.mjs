// openai-node: chat completions and responses, plainly, by the stream helpers, and parsed.
import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { Note, run } from "./harness.mjs";

const model = "gpt-4o";
const opened = (url, key) => new OpenAI({ baseURL: `${url}/v1`, apiKey: key });
const messages = (prompt) => [{ role: "user", content: prompt }];

await run({
  chat: (url, key) => {
    const completions = opened(url, key).chat.completions;
    return {
      ask: async (prompt) => (await completions.create({ model, messages: messages(prompt) })).choices[0].message.content,
      async *stream(prompt) {
        for await (const chunk of await completions.create({ model, messages: messages(prompt), stream: true })) {
          yield chunk.choices[0].delta.content;
        }
      },
      async parse(prompt) {
        const format = zodResponseFormat(Note, "note");
        const answer = await completions.parse({ model, messages: messages(prompt), response_format: format });
        return answer.choices[0].message.parsed.note;
      },
      async call(prompt) {
        const noted = [];
        const remember = zodFunction({
          name: "remember",
          description: "Remember a note",
          parameters: Note,
          function: ({ note }) => (noted.push(note), "kept"),
        });
        const runner = completions.runTools({ model, messages: messages(prompt), tools: [remember] });
        const text = await runner.finalContent();
        return `${noted[0]}; ${text}`;
      },
    };
  },
  responses: (url, key) => {
    const { responses } = opened(url, key);
    return {
      ask: async (prompt) => (await responses.create({ model, input: prompt })).output_text,
      async *stream(prompt) {
        for await (const event of await responses.create({ model, input: prompt, stream: true })) {
          if (event.type === "response.output_text.delta") yield event.delta;
        }
      },
      async parse(prompt) {
        const text = { format: zodTextFormat(Note, "note") };
        return (await responses.parse({ model, input: prompt, text })).output_parsed.note;
      },
    };
  },
  "responses, stream helper": (url, key) => {
    const { responses } = opened(url, key);
    return {
      async *stream(prompt) {
        for await (const event of responses.stream({ model, input: prompt })) {
          if (event.type === "response.output_text.delta") yield event.delta;
        }
      },
      async parse(prompt) {
        const text = { format: zodTextFormat(Note, "note") };
        return (await responses.stream({ model, input: prompt, text }).finalResponse()).output_parsed.note;
      },
    };
  },
});
