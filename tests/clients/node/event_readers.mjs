// Reads streams with the decoders of the SDKs. On standard input a JSON list of streams, each a list of reads in base64;
// prints for each decoder a list of what it found: [data, type] for each event.
import { _iterSSEMessages as anthropic } from "@anthropic-ai/sdk/core/streaming";
import { createParser } from "eventsource-parser";
import { EventSourceParserStream } from "eventsource-parser/stream";
import { _iterSSEMessages as openai } from "openai/core/streaming";
import { text } from "node:stream/consumers";

const streams = JSON.parse(await text(process.stdin));
const found = { openai: [], anthropic: [], "eventsource-parser": [], "eventsource-parser, piped": [] };

for (const reads of streams.map((stream) => stream.map((read) => Buffer.from(read, "base64")))) {
  found.openai.push(await all(openai(new Response(body(reads)), new AbortController())));
  found.anthropic.push(await all(anthropic(new Response(body(reads)), new AbortController())));
  found["eventsource-parser"].push(parsed(reads));
  const piped = body(reads).pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
  found["eventsource-parser, piped"].push(await all(piped));
}
console.log(JSON.stringify(found));

function body(reads) {
  return new ReadableStream({
    start(controller) {
      for (const read of reads) controller.enqueue(new Uint8Array(read));
      controller.close();
    },
  });
}

async function all(events) {
  const read = [];
  for await (const { data, event } of events) read.push([data, event || "message"]);
  return read;
}

function parsed(reads) {
  const read = [];
  const parser = createParser({ onEvent: ({ data, event }) => read.push([data, event || "message"]) });
  const decoder = new TextDecoder();
  for (const bytes of reads) parser.feed(decoder.decode(bytes, { stream: true }));
  parser.feed(decoder.decode());
  parser.reset({ consume: true });
  return read;
}
