// Plays the history: time of the log passes so many times as fast as the clock. Spans without events are skipped. A
// moment stays until all of it is shown.

import { useEffect, useRef, useState } from "preact/hooks";
import { isReading } from "../api/use-query";
import { isVisible } from "../api/visibility";
import { at, showMoment } from "../moment";
import { type LogOverview, offsetAt, placeOfOffset } from "./log-overview";

const SPEEDS = [1, 10, 60, 600, 3600] as const;
const FRAME_MS = 250;
/** A frame shows at least one new event, so that a quiet log does not look as if it stood still. */
const LEAST_STEP = 1;

export function Player({ log, offset }: { log: LogOverview; offset: number | null }) {
  const [isPlaying, setPlaying] = useState(false);
  const [speed, setSpeed] = useState<number>(10);
  const newest = useRef({ log, offset });
  newest.current = { log, offset };

  useEffect(() => {
    if (!isPlaying) return;
    const timer = window.setInterval(() => {
      const { log, offset } = newest.current;
      if (offset === null || isReading() || !isVisible.peek()) return;
      const next = nextOffset(log, offset, speed);
      if (next === null) setPlaying(false);
      showMoment(next === null ? null : String(next), true);
    }, FRAME_MS);
    return () => window.clearInterval(timer);
  }, [isPlaying, speed]);

  const start = (): void => {
    if (at.value === null && log.first !== null) showMoment(String(log.first.offset), true);
    setPlaying(true);
  };
  return (
    <div class="player">
      <button
        type="button"
        class="icon"
        aria-label={isPlaying ? "Pause" : "Play the history"}
        onClick={isPlaying ? () => setPlaying(false) : start}
      >
        {isPlaying ? "❚❚" : "▶"}
      </button>
      <select
        aria-label="Speed"
        value={speed}
        onChange={(event) => setSpeed(Number(event.currentTarget.value))}
      >
        {SPEEDS.map((each) => (
          <option key={each} value={each}>
            {each}×
          </option>
        ))}
      </select>
    </div>
  );
}

/** Returns the offset of the next frame; null at the end of the log. */
function nextOffset(log: LogOverview, offset: number, speed: number): number | null {
  if (log.first === null || log.last === null || offset >= log.last.offset) return null;
  const duration = log.last.time - log.first.time;
  const step = duration === 0 ? 1 : (FRAME_MS * 1000 * speed) / duration;
  const target = offsetAt(log, Math.min(1, placeOfOffset(log, offset) + step));
  return Math.min(log.last.offset, Math.max(offset + LEAST_STEP, target));
}
