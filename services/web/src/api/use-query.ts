// A view's data: read once for a past moment; read again for the present whenever the log has a new event. What the log
// does not have (metrics, log files) is read again every few seconds.

import { useEffect, useState } from "preact/hooks";
import { at, toOffset } from "../moment";
import {
  type Answer,
  type AnswerOf,
  type GetPath,
  get,
  isTemporary,
  type PathValues,
  type QueryValues,
} from "./client";
import { noteOffset } from "./event-stream";
import { findPastAnswer, keepPastAnswer } from "./past-answers";
import { repeat } from "./repeat";
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
  /** Whether the answer is that of the moment which is shown, which is the default. If not, it is that of now. */
  readonly hasMoment?: boolean;
  /** The number of changes that the user has made here: another one reads at once. */
  readonly changes?: number;
  /** Nothing is read while this is false. */
  readonly enabled?: boolean;
}

/** The number of reads that wait for their answers. */
let waiting = 0;

/** Whether a view waits for an answer. */
export function isReading(): boolean {
  return waiting > 0;
}

/** Returns the newest answer of a path. While another moment is read, the answer of the moment before stays. */
export function useQuery<Path extends GetPath>(
  path: Path,
  values: PathValues = {},
  options: QueryOptions = {},
): Query<AnswerOf<Path>> {
  const { query = {}, refresh = "log", enabled = true, hasMoment = true, changes = 0 } = options;
  const subject = JSON.stringify([path, values, query]);
  const moment = hasMoment ? at.value : null;
  const [found, setFound] = useState<Query<AnswerOf<Path>> & { subject: string }>(() => ({
    subject,
    ...nothing,
  }));

  useEffect(() => {
    if (!enabled) return;
    const abort = new AbortController();
    const read = async (): Promise<boolean> => {
      waiting += 1;
      try {
        const { body, offset } = await readAt(path, values, query, moment, abort.signal);
        if (!abort.signal.aborted) setFound({ subject, body, offset, error: null });
        return true;
      } catch (error) {
        if (abort.signal.aborted) return true;
        const isKept = isTemporary(error);
        setFound((before) => ({
          ...(isKept && before.subject === subject ? before : { subject, ...nothing }),
          error: error instanceof Error ? error : new Error(String(error)),
        }));
        return !isKept;
      } finally {
        waiting -= 1;
      }
    };
    const isFinal = moment !== null || refresh === "never";
    const stop = repeat(read, isFinal ? {} : refresh === "log" ? { byLog: true } : { everyMs: refresh });
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
    if (answer.offset !== null) noteOffset(answer.offset);
    return answer;
  }
  const key = JSON.stringify([path, values, query, moment]);
  const known = findPastAnswer(key) as Answer<AnswerOf<Path>> | undefined;
  if (known !== undefined) return known;
  const answer = await get(path, values, { ...query, at: moment }, signal);
  // A time like -10m is another moment each time.
  if (toOffset(moment) !== null) keepPastAnswer(key, answer);
  return answer;
}
