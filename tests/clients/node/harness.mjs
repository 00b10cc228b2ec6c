// Asks through one client what the environment's PLAN says, all at once, and prints the outcomes as JSON: what
// ../programs/harness.py does for Python.
import { z } from "zod";

export const Note = z.object({ note: z.string() });

// `ways`: name → a function of a server's address, without `/v1`, and a key, which gives { ask, stream, parse, call }.
export async function run(ways) {
  const found = {};
  const asked = [];
  for (const [name, open] of Object.entries(ways)) {
    for (const [place, { url, key, ask, parse, call }] of Object.entries(JSON.parse(process.env.PLAN))) {
      const way = open(url, key);
      const outcomes = ((found[name] ??= {})[place] = {});
      for (const prompt of ask) {
        if (way.ask) asked.push(note(outcomes, `${prompt}, whole`, once(way.ask, prompt)));
        if (way.stream) asked.push(note(outcomes, `${prompt}, streamed`, way.stream(prompt)));
      }
      for (const prompt of way.parse ? parse : []) asked.push(note(outcomes, `${prompt}, parsed`, once(way.parse, prompt)));
      for (const prompt of way.call ? call : []) asked.push(note(outcomes, `${prompt}, called`, once(way.call, prompt)));
    }
  }
  await Promise.all(asked);
  console.log(JSON.stringify(found));
}

async function* once(ask, prompt) {
  yield await ask(prompt);
}

async function note(outcomes, name, pieces) {
  const outcome = (outcomes[name] = { text: "", error: null });
  try {
    for await (const piece of pieces) outcome.text += piece ?? "";
  } catch (raised) {
    // An answer that had begun had the status 200, whatever a client makes of it.
    outcome.error = (outcome.text === "" && statusOf(raised)) || "error";
    console.error(`${name}: ${raised?.name}: ${raised?.message}`);
  }
}

function statusOf(raised) {
  for (let error = raised; error; error = error.lastError ?? error.cause) {
    const status = error.status ?? error.statusCode;
    if (status >= 400) return status;
  }
}
