// The events of the log as they come, by server-sent events. EventSource cannot send a token, so a fetch reads them.
// After a lost connection the stream goes on behind the last event that it had.

import { signal } from "@preact/signals";
import { fillPath, RequestError, send } from "./client";

export interface LogEvent {
  readonly offset: number;
  readonly type: string;
  readonly header: Readonly<Record<string, unknown>>;
  readonly fields: Readonly<Record<string, unknown>>;
}

export type Connection = "connecting" | "live" | "lost";
type Listener = (event: LogEvent) => void;

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;

/** Whether events arrive. */
export const connection = signal<Connection>("connecting");
/** The offset of the last event that is known, -1 before the first. */
export const lastOffset = signal(-1);

const listeners = new Set<Listener>();
let abort = new AbortController();

/** Calls the listener with each new event, until the function that is returned is called. */
export function listen(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Follows the log behind an offset: the events of one job, or all. An earlier stream ends. */
export function follow(offset: number, job: string | null): void {
  abort.abort();
  abort = new AbortController();
  lastOffset.value = Math.max(lastOffset.value, offset);
  void run(job, abort.signal);
}

/** Ends the stream. */
export function stopFollowing(): void {
  abort.abort();
  connection.value = "connecting";
}

async function run(job: string | null, ended: AbortSignal): Promise<void> {
  let pause = FIRST_PAUSE_MS;
  while (!ended.aborted) {
    try {
      const url = fillPath(
        "/api/v1/events/stream",
        {},
        { from: lastOffset.value + 1, job: job ?? undefined },
      );
      const response = await send("GET", url, undefined, ended, { Accept: "text/event-stream" });
      connection.value = "live";
      pause = FIRST_PAUSE_MS;
      if (response.body !== null) await readEvents(response.body);
    } catch (error) {
      if (ended.aborted) return;
      if (error instanceof RequestError && error.status === 401) return;
    }
    if (ended.aborted) return;
    connection.value = "lost";
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(LONGEST_PAUSE_MS, pause * 2);
  }
}

async function readEvents(body: ReadableStream<Uint8Array>): Promise<void> {
  const reader = body
    .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>)
    .getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const messages = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = messages.pop() ?? "";
    for (const message of messages) tell(message);
  }
}

/** Passes a message of the stream on. A message without data is a comment that keeps the connection open. */
function tell(message: string): void {
  const data: string[] = [];
  for (const line of message.split("\n")) {
    const [name = "", text = ""] = splitOnce(line, ":");
    if (name === "id" && /^ ?\d+$/.test(text)) lastOffset.value = Number(text);
    if (name === "data") data.push(text.startsWith(" ") ? text.slice(1) : text);
  }
  if (data.length === 0) return;
  const event = JSON.parse(data.join("\n")) as LogEvent;
  for (const listener of listeners) listener(event);
}

function splitOnce(text: string, separator: string): [string, string] {
  const place = text.indexOf(separator);
  return place < 0 ? [text, ""] : [text.slice(0, place), text.slice(place + 1)];
}
