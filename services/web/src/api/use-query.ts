// A view's data: read once for a past moment; read again for the present whenever the log has a new event. What the log
// does not have (metrics, log files) is read again every few seconds, while the page is visible.

import { useEffect, useRef, useState } from "preact/hooks";
import { at } from "../moment";
import { type Answer, type AnswerOf, type GetPath, get, type PathValues, type QueryValues } from "./client";
import { lastOffset, listen } from "./event-stream";
import { token } from "./token";

export interface Query<Body> {
  readonly body: Body | null;
  /** The offset that the body is true at. */
  readonly offset: number | null;
  readonly error: Error | null;
}

export interface QueryOptions {
  readonly query?: QueryValues;
  /** "log": with each event, which is the default; "never": it does not change; a number: every so many milliseconds. */
  readonly refresh?: "log" | "never" | number;
  /** The answer does not depend on the moment that is shown: it is about the log itself. */
  readonly isOfLog?: boolean;
  /** The number of changes that the user has made here: another one reads at once. */
  readonly changes?: number;
  /** Nothing is read while this is false. */
  readonly enabled?: boolean;
}

const LEAST_PAUSE_MS = 300;
const PAST_ANSWERS = 200;

/** Answers of past moments, which never change; the least recently used first. */
const pastAnswers = new Map<string, Answer<unknown>>();

/** Returns the newest answer of a path. While another moment is read, the answer of the moment before stays. */
export function useQuery<Path extends GetPath>(
  path: Path,
  values: PathValues = {},
  options: QueryOptions = {},
): Query<AnswerOf<Path>> {
  const { query = {}, refresh = "log", enabled = true, isOfLog = false, changes = 0 } = options;
  const subject = JSON.stringify([path, values, query]);
  const moment = isOfLog ? null : at.value;
  const [found, setFound] = useState<Query<AnswerOf<Path>> & { subject: string }>(() => ({
    subject,
    ...nothing,
  }));
  // A slow answer must not replace a later one.
  const newest = useRef(0);

  useEffect(() => {
    if (!enabled) return;
    const abort = new AbortController();
    const read = async (): Promise<void> => {
      newest.current += 1;
      const number = newest.current;
      try {
        const answer = await readAt(path, values, query, moment, abort.signal);
        if (abort.signal.aborted || number !== newest.current) return;
        setFound({ subject, body: answer.body, offset: answer.offset, error: null });
      } catch (error) {
        if (abort.signal.aborted || number !== newest.current) return;
        setFound((before) => ({
          subject,
          body: before.subject === subject ? before.body : null,
          offset: before.subject === subject ? before.offset : null,
          error: error instanceof Error ? error : new Error(String(error)),
        }));
      }
    };
    const isFinal = moment !== null || refresh === "never";
    if (isFinal) void read();
    const stop = isFinal ? () => {} : refresh === "log" ? repeatByLog(read) : repeatByTime(read, refresh);
    return () => {
      stop();
      abort.abort();
    };
    // `subject` stands for path, values and query.
  }, [subject, moment, refresh, enabled, changes, token.value]);

  return found.subject === subject ? found : nothing;
}

const nothing: Query<never> = { body: null, offset: null, error: null };

async function readAt<Path extends GetPath>(
  path: Path,
  values: PathValues,
  query: QueryValues,
  moment: string | null,
  signal: AbortSignal,
): Promise<Answer<AnswerOf<Path>>> {
  if (moment === null) {
    const answer = await get(path, values, query, signal);
    if (answer.offset !== null && answer.offset > lastOffset.value) lastOffset.value = answer.offset;
    return answer;
  }
  const key = JSON.stringify([path, values, query, moment]);
  const known = pastAnswers.get(key) as Answer<AnswerOf<Path>> | undefined;
  const answer = known ?? (await get(path, values, { ...query, at: moment }, signal));
  // A time like -10m is another moment each time.
  if (/^\d+$/.test(moment)) {
    pastAnswers.delete(key);
    pastAnswers.set(key, answer);
    for (const oldest of pastAnswers.keys()) {
      if (pastAnswers.size <= PAST_ANSWERS) break;
      pastAnswers.delete(oldest);
    }
  }
  return answer;
}

/** Reads now and after events, never twice at a time, and with pauses as long as the reads are. */
function repeatByLog(read: () => Promise<void>): () => void {
  let isStale = false;
  let isBusy = false;
  let timer: number | undefined;
  const run = async (): Promise<void> => {
    isBusy = true;
    isStale = false;
    const begun = performance.now();
    await read();
    timer = window.setTimeout(
      () => {
        isBusy = false;
        if (isStale) void run();
      },
      Math.max(LEAST_PAUSE_MS, performance.now() - begun),
    );
  };
  const stop = listen(() => {
    isStale = true;
    if (!isBusy) void run();
  });
  void run();
  return () => {
    stop();
    window.clearTimeout(timer);
  };
}

function repeatByTime(read: () => Promise<void>, pauseMs: number): () => void {
  let timer: number | undefined;
  let isOver = false;
  const run = async (): Promise<void> => {
    if (document.visibilityState === "visible") await read();
    if (!isOver) timer = window.setTimeout(run, pauseMs);
  };
  void run();
  return () => {
    isOver = true;
    window.clearTimeout(timer);
  };
}
