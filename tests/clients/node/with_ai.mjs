// The Vercel AI SDK: @ai-sdk/openai with its default, which is the Responses API, and with chat, openai-compatible and
// anthropic.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, Output, streamText, tool } from "ai";
import { Note, run } from "./harness.mjs";

function tools(noted) {
  const remember = async ({ note }) => (noted.push(note), "kept");
  return { remember: tool({ description: "Remember a note", inputSchema: Note, execute: remember }) };
}

const way = (model) => ({
  ask: async (prompt) => (await generateText({ model, prompt })).text,
  async *stream(prompt) {
    const { fullStream } = streamText({ model, prompt, onError: () => {} });
    for await (const part of fullStream) {
      if (part.type === "text-delta") yield part.text;
      if (part.type === "error") throw part.error;
    }
  },
  parse: async (prompt) => (await generateText({ model, prompt, output: Output.object({ schema: Note }) })).output.note,
  async call(prompt) {
    const noted = [];
    const { text } = await generateText({ model, prompt, tools: tools(noted), stopWhen: isStepCount(3) });
    return `${noted[0]}; ${text}`;
  },
});

const streamedCalls = (model) => ({
  async call(prompt) {
    const noted = [];
    const result = streamText({ model, prompt, tools: tools(noted), stopWhen: isStepCount(3), onError: () => {} });
    const text = await result.text;
    return `${noted[0]}; ${text}`;
  },
});

// With its default the texts of the first turn are named by their ids in the second one.
const twoTurns = (model) => ({
  async ask(prompt) {
    const messages = [{ role: "user", content: prompt }];
    const { response } = await generateText({ model, messages });
    messages.push(...response.messages, { role: "user", content: prompt });
    return (await generateText({ model, messages })).text;
  },
});

// Without the option schemas are not sent.
const compatible = (url, apiKey) =>
  createOpenAICompatible({ name: "portcullis", baseURL: `${url}/v1`, apiKey, supportsStructuredOutputs: true });

await run({
  openai: (url, apiKey) => way(createOpenAI({ baseURL: `${url}/v1`, apiKey })("gpt-4o")),
  "openai, calls of streams": (url, apiKey) => streamedCalls(createOpenAI({ baseURL: `${url}/v1`, apiKey })("gpt-4o")),
  "openai, two turns": (url, apiKey) => twoTurns(createOpenAI({ baseURL: `${url}/v1`, apiKey })("gpt-4o")),
  "openai, chat": (url, apiKey) => way(createOpenAI({ baseURL: `${url}/v1`, apiKey }).chat("gpt-4o")),
  "openai-compatible": (url, apiKey) => way(compatible(url, apiKey)("gpt-4o")),
  anthropic: (url, apiKey) => way(createAnthropic({ baseURL: `${url}/v1`, apiKey })("claude-sonnet-4-5")),
});
