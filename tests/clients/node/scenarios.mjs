// Runs every scenario through the official Node SDK and prints their outcomes as one JSON object.
// Reads BASE_URL, API_KEY, SCENARIOS, a JSON object: name → the request's further fields, and TEXTS, the same for text
// completions.
import OpenAI from "openai";

const { BASE_URL, API_KEY, MODEL } = process.env;
const scenarios = JSON.parse(process.env.SCENARIOS);
const textScenarios = JSON.parse(process.env.TEXTS);
const client = new OpenAI({ baseURL: BASE_URL, apiKey: API_KEY, maxRetries: 0, timeout: 30_000 });

const ask = (name, more = {}) => ({
  model: MODEL,
  messages: [{ role: "user", content: name }],
  ...scenarios[name],
  ...more,
});

const choice = () => ({ content: "", reasoning: "", calls: [], finish: null });

const parsed = (calls) =>
  calls.map(({ name, arguments: text }) => ({ name, arguments: JSON.parse(text) }));

function shown(error) {
  if (!(error instanceof OpenAI.APIError)) throw error;
  return { status: error.status ?? null, code: error.code ?? null };
}

async function streamed(name) {
  const choices = [];
  let error = null;
  try {
    for await (const chunk of await client.chat.completions.create(ask(name, { stream: true }))) {
      for (const part of chunk.choices) {
        const whole = (choices[part.index] ??= choice());
        whole.content += part.delta.content ?? "";
        whole.reasoning += part.delta.reasoning_content ?? "";
        whole.finish = part.finish_reason ?? whole.finish;
        for (const call of part.delta.tool_calls ?? []) {
          const entry = (whole.calls[call.index] ??= { name: "", arguments: "" });
          entry.name += call.function?.name ?? "";
          entry.arguments += call.function?.arguments ?? "";
        }
      }
    }
  } catch (raised) {
    error = shown(raised);
  }
  return { choices: choices.map((whole) => ({ ...whole, calls: parsed(whole.calls) })), error };
}

function choicesOf(completion) {
  return completion.choices.map(({ message, finish_reason: finish }) => ({
    content: message.content ?? "",
    reasoning: message.reasoning_content ?? "",
    calls: parsed((message.tool_calls ?? []).map((call) => call.function)),
    finish,
  }));
}

async function attempted(call) {
  try {
    return { choices: choicesOf(await call()), error: null };
  } catch (raised) {
    return { choices: [], error: shown(raised) };
  }
}

const found = {};
for (const name of Object.keys(scenarios)) {
  found[`${name}, streamed`] = await streamed(name);
  found[`${name}, whole`] = await attempted(() => client.chat.completions.create(ask(name)));
}
const stranger = new OpenAI({ baseURL: BASE_URL, apiKey: "sk-wrong", maxRetries: 0 });
found["wrong key"] = await attempted(() => stranger.chat.completions.create(ask("redacted")));
found["unknown path"] = await attempted(() => client.files.list());
found["models"] = { models: (await client.models.list()).data.map((model) => model.id) };

// Text completions.
const askText = (name) => ({ model: MODEL, prompt: name, ...textScenarios[name] });

async function streamedTexts(name) {
  const choices = [];
  let error = null;
  try {
    for await (const part of await client.completions.create({ ...askText(name), stream: true })) {
      for (const { index, text, finish_reason: finish } of part.choices) {
        const whole = (choices[index] ??= { text: "", finish: null });
        whole.text += text;
        whole.finish = finish ?? whole.finish;
      }
    }
  } catch (raised) {
    error = shown(raised);
  }
  return { choices, error };
}

async function wholeTexts(name) {
  try {
    const { choices } = await client.completions.create(askText(name));
    return { choices: choices.map(({ text, finish_reason: finish }) => ({ text, finish })), error: null };
  } catch (raised) {
    return { choices: [], error: shown(raised) };
  }
}

const texts = {};
for (const name of Object.keys(textScenarios)) {
  texts[`${name}, streamed`] = await streamedTexts(name);
  texts[`${name}, whole`] = await wholeTexts(name);
}

// The stream helper, which adds the deltas up by itself.
const helper = {};
for (const name of ["redacted", "blocked", "tools"]) {
  const final = await client.chat.completions.stream(ask(name)).finalChatCompletion();
  helper[name] = { choices: choicesOf(final), error: null };
}

console.log(JSON.stringify({ node: process.version, found, texts, helper }));
