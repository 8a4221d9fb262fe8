// The lines of a log file: its end, and what is added to it while the page is visible.

import { useEffect, useRef, useState } from "preact/hooks";
import { fillPath, send } from "../api/client";
import { Empty, Failure, Loading } from "../parts/states";

const PAUSE_MS = 1_000;
/** A page that stays open keeps the last lines only. */
const MOST_CHARACTERS = 2_000_000;
/** Within so many pixels of the end, the view follows what is added. */
const NEAR_END_PX = 40;

export function LogLines({ folder, name }: { folder: string; name: string }) {
  const [text, setText] = useState<string | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const box = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);

  useEffect(() => {
    const abort = new AbortController();
    let next: number | undefined;
    let timer: number | undefined;
    const read = async (): Promise<void> => {
      try {
        if (document.visibilityState === "visible") {
          const url = fillPath(`${folder}/{name}`, { name }, { offset: next });
          const response = await send("GET", url, undefined, abort.signal);
          const added = await response.text();
          next = Number(response.headers.get("Tailrace-Log-Next"));
          setText((before) => ((before ?? "") + added).slice(-MOST_CHARACTERS));
          setError(null);
        }
      } catch (found) {
        if (abort.signal.aborted) return;
        setError(found instanceof Error ? found : new Error(String(found)));
      }
      timer = window.setTimeout(read, PAUSE_MS);
    };
    void read();
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [folder, name]);

  useEffect(() => {
    if (isAtEnd.current && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);

  if (text === null) return error === null ? <Loading /> : <Failure error={error} />;
  return (
    <>
      {error !== null && (
        <p class="banner warning" role="status">
          {error.message}
        </p>
      )}
      {text === "" ? (
        <Empty>The file is empty.</Empty>
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
