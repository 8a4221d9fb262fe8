// When something is read again: after events of the log, or after a pause. A page in a hidden tab reads nothing, and goes
// on when it is shown. What is not available now is tried again, after longer and longer pauses.

import { listen } from "./event-stream";
import { isVisible } from "./visibility";

export interface Repetition {
  /** Whether it is read again after each event of the log. */
  readonly byLog?: boolean;
  /** It is read again so many milliseconds after the read before. */
  readonly everyMs?: number;
}

const LEAST_PAUSE_MS = 300;
/** Reads that follow the log take a fifth of the server's time at most: a story reads the whole log. */
const PAUSE_PER_READ = 4;
const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 10_000;

/** Reads now and again, never twice at a time, until the function that is returned is called. `read` returns false for
 * what is to be tried again. */
export function repeat(
  read: () => Promise<boolean>,
  { byLog = false, everyMs }: Repetition = {},
): () => void {
  let isStale = true;
  let isBusy = false;
  let isOver = false;
  let retryMs = FIRST_RETRY_MS;
  let timer: number | undefined;

  const start = (): void => {
    if (isStale && !isBusy && !isOver && isVisible.peek()) void run();
  };
  const run = async (): Promise<void> => {
    isBusy = true;
    isStale = false;
    const begun = performance.now();
    const isDone = await read();
    if (isOver) return;
    const readMs = performance.now() - begun;
    const pause = isDone ? (everyMs ?? Math.max(LEAST_PAUSE_MS, PAUSE_PER_READ * readMs)) : retryMs;
    retryMs = isDone ? FIRST_RETRY_MS : Math.min(LAST_RETRY_MS, retryMs * 2);
    timer = window.setTimeout(() => {
      isBusy = false;
      isStale ||= !isDone || everyMs !== undefined;
      start();
    }, pause);
  };
  const refresh = (): void => {
    isStale = true;
    start();
  };
  const stopListening = byLog ? listen(refresh) : () => {};
  // Of a hidden page no event is known, so what follows the log is read again. The first call is the first read.
  const stopWatching = isVisible.subscribe((isShown) => {
    if (isShown && byLog) isStale = true;
    start();
  });
  return () => {
    isOver = true;
    stopListening();
    stopWatching();
    window.clearTimeout(timer);
  };
}
