// Reads the server-sent events of an answer. EventSource cannot send a token, so a fetch reads them.

export interface Message {
  readonly id: string | undefined;
  readonly event: string | undefined;
  /** Undefined in a comment, which keeps the connection open. */
  readonly data: string | undefined;
}

/** Calls `onMessages` with the messages of each part that arrives, until the stream ends. */
export async function readMessages(
  body: ReadableStream<Uint8Array>,
  onMessages: (messages: readonly Message[]) => void,
): Promise<void> {
  const reader = body
    .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>)
    .getReader();
  let rest: string[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    // A large message has many parts: they are joined once.
    rest.push(value);
    if (!value.includes("\n")) continue;
    const blocks = rest.join("").replaceAll("\r\n", "\n").split("\n\n");
    rest = [blocks.pop() ?? ""];
    if (blocks.length > 0) onMessages(blocks.map(parseMessage));
  }
}

function parseMessage(block: string): Message {
  const fields = new Map<string, string>();
  for (const line of block.split("\n")) {
    const place = line.indexOf(":");
    if (place > 0) fields.set(line.slice(0, place), line.slice(place + 1).replace(/^ /, ""));
  }
  return { id: fields.get("id"), event: fields.get("event"), data: fields.get("data") };
}
