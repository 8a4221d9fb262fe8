// Lines of text: the end of them, and what is added while the page is visible.

import { useEffect, useRef, useState } from "preact/hooks";
import { repeat } from "../api/repeat";
import { Empty, Failure, Loading, Warning } from "./states";

const REFRESH_MS = 1_000;
/** A page that stays open keeps the last lines only. */
const MOST_CHARACTERS = 2_000_000;
/** Within so many pixels of the end, the view follows what is added. */
const NEAR_END_PX = 40;

/** Text, and the offset of what comes after it. */
export interface TextPart {
  readonly text: string;
  readonly next: number;
}

/** Returns the text from an offset on; without one, the end of it. */
export type ReadText = (from: number | undefined, signal: AbortSignal) => Promise<TextPart>;

/** `subject`: what the lines are of; another one is read from its end again. `empty`: what stands there without lines. */
export function FollowedLines({ subject, read, empty }: { subject: string; read: ReadText; empty: string }) {
  const [text, setText] = useState<string | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const box = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);

  useEffect(() => {
    const abort = new AbortController();
    let next: number | undefined;
    setText(null);
    const follow = async (): Promise<boolean> => {
      try {
        const added = await read(next, abort.signal);
        if (abort.signal.aborted) return true;
        next = added.next;
        setText((before) => ((before ?? "") + added.text).slice(-MOST_CHARACTERS));
        setError(null);
        return true;
      } catch (found) {
        if (abort.signal.aborted) return true;
        setError(found instanceof Error ? found : new Error(String(found)));
        return false;
      }
    };
    const stop = repeat(follow, { everyMs: REFRESH_MS });
    return () => {
      stop();
      abort.abort();
    };
    // `subject` stands for `read`.
  }, [subject]);

  useEffect(() => {
    if (isAtEnd.current && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);

  if (text === null) return error === null ? <Loading /> : <Failure error={error} />;
  return (
    <>
      {error !== null && <Warning>{error.message}</Warning>}
      {text === "" ? (
        <Empty>{empty}</Empty>
      ) : (
        <pre
          ref={box}
          class="log-lines"
          // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard
          tabIndex={0}
          onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
            isAtEnd.current = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
          }}
        >
          {text}
        </pre>
      )}
    </>
  );
}
