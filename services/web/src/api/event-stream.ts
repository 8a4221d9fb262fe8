// Which events the log gets, by server-sent events. After a lost connection the stream goes on behind the last event that
// it had.

import { computed, signal } from "@preact/signals";
import { fillPath, RequestError, send } from "./client";
import { readMessages } from "./server-sent-events";
import { isVisible } from "./visibility";

export type Connection = "connecting" | "live" | "lost";
type Listener = () => void;

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;

/** Whether events arrive. */
export const connection = signal<Connection>("connecting");
/** The offset of the last event that is known, -1 before the first. */
export const lastOffset = signal(-1);
/** Whether an event is known. */
export const isLogKnown = computed(() => lastOffset.value >= 0);

const listeners = new Set<Listener>();
let abort = new AbortController();

// Events that come while the page is hidden are not sent one by one later: the stream begins anew.
isVisible.subscribe((isShown) => {
  if (isShown) lastOffset.value = -1;
});

/** Notes that the log has an event at an offset. */
export function noteOffset(offset: number): void {
  if (offset > lastOffset.peek()) lastOffset.value = offset;
}

/** Calls the listener after each new event, until the function that is returned is called. */
export function listen(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Follows the log behind an offset: the events of one job, or all. An earlier stream ends. */
export function follow(offset: number, job: string | null): void {
  abort.abort();
  abort = new AbortController();
  void run(offset + 1, job, abort.signal);
}

/** Ends the stream. */
export function stopFollowing(): void {
  abort.abort();
  connection.value = "connecting";
}

async function run(start: number, wanted: string | null, ended: AbortSignal): Promise<void> {
  // `lastOffset` is no position of the stream: answers of other requests may be ahead of it.
  let position: number | undefined = start;
  let job = wanted;
  let pause = FIRST_PAUSE_MS;
  while (!ended.aborted) {
    try {
      const url = fillPath("/api/v1/events/stream", {}, { from: position, job: job ?? undefined });
      const response = await send("GET", url, undefined, ended, { Accept: "text/event-stream" });
      connection.value = "live";
      pause = FIRST_PAUSE_MS;
      // Without a position, events may have come before the stream.
      if (position === undefined) announce();
      if (response.body !== null) {
        await readMessages(response.body, (messages) => {
          for (const { id } of messages) {
            if (id === undefined || !/^\d+$/.test(id)) continue;
            position = Number(id) + 1;
            noteOffset(Number(id));
          }
          if (messages.some(({ data }) => data !== undefined)) announce();
        });
      }
    } catch (error) {
      if (ended.aborted) return;
      const status = error instanceof RequestError ? error.status : 0;
      if (status === 401) return;
      if (status === 404 && (job !== null || position !== undefined)) {
        // The log does not have the job, or it has no such position any more: all new events are followed.
        job = null;
        position = undefined;
        continue;
      }
    }
    if (ended.aborted) return;
    connection.value = "lost";
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(LONGEST_PAUSE_MS, pause * 2);
  }
}

function announce(): void {
  for (const listener of listeners) listener();
}
