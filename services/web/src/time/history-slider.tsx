// The history as a line of time: bars for the number of events, ticks for notable ones, and a handle for the moment.
// It is a slider of ARIA: arrows go by an event, Page keys by a hundredth of the time, Home and End to the ends.

import { useRef } from "preact/hooks";
import { formatTime } from "../formats";
import { showMoment } from "../moment";
import { type LogOverview, offsetAt, placeOf, placeOfOffset } from "./log-overview";

const WIDTH = 1000;
const HEIGHT = 28;
const PAGE_STEP = 0.01;
const PAUSE_MS = 60;

export function HistorySlider({ log, offset }: { log: LogOverview; offset: number | null }) {
  const line = useRef<HTMLDivElement>(null);
  const show = usePaused((moment: number) => showMoment(String(moment), true));
  const { first, last } = log;
  if (first === null || last === null) return null;
  const place = offset === null ? 1 : placeOfOffset(log, offset);
  const now = Math.min(last.offset, offset ?? last.offset);

  const drag = (event: PointerEvent): void => {
    const box = line.current?.getBoundingClientRect();
    if (box === undefined || (event.buttons & 1) === 0) return;
    show(offsetAt(log, Math.min(1, Math.max(0, (event.clientX - box.left) / box.width))));
  };
  const press = (event: KeyboardEvent): void => {
    const target = targetOf(event.key, now, place, log);
    if (target === null) return;
    event.preventDefault();
    showMoment(String(Math.min(last.offset, Math.max(first.offset, target))), true);
  };
  const time = first.time + place * (last.time - first.time);
  return (
    <div
      ref={line}
      class="history"
      role="slider"
      tabIndex={0}
      aria-label="Moment of the log"
      aria-valuemin={first.offset}
      aria-valuemax={last.offset}
      aria-valuenow={now}
      aria-valuetext={`offset ${now}, about ${formatTime(time / 1000)}`}
      onPointerDown={(event) => {
        line.current?.setPointerCapture(event.pointerId);
        drag(event);
      }}
      onPointerMove={drag}
      onKeyDown={press}
    >
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
        <Bars log={log} />
        {log.marks.map((mark) => (
          <rect
            key={mark.offset}
            class={`tick ${mark.kind} ${mark.text.toLowerCase()}`}
            x={placeOf(log, mark.time) * (WIDTH - 2)}
            y={0}
            width={2}
            height={6}
          />
        ))}
      </svg>
      <PlaceMark place={place} />
    </div>
  );
}

/** The handle. Its place is set by the DOM: the page's policy forbids style attributes in the document. */
function PlaceMark({ place }: { place: number }) {
  return <i class="handle" style={{ left: `${place * 100}%` }} />;
}

function Bars({ log }: { log: LogOverview }) {
  const most = Math.max(1, ...log.buckets.map((bucket) => bucket.events));
  const width = WIDTH / Math.max(1, log.buckets.length);
  const path = log.buckets
    .map(({ events }, number) => {
      // Few events beside many must be seen: the square root of their share.
      const height = Math.sqrt(events / most) * (HEIGHT - 8);
      const x = (number * width).toFixed(1);
      return height === 0
        ? ""
        : `M${x} ${HEIGHT}v-${height.toFixed(1)}h${(width * 0.8).toFixed(1)}V${HEIGHT}z`;
    })
    .join("");
  return <path class="bars" d={path} />;
}

function targetOf(key: string, now: number, place: number, log: LogOverview): number | null {
  switch (key) {
    case "ArrowLeft":
    case "ArrowDown":
      return now - 1;
    case "ArrowRight":
    case "ArrowUp":
      return now + 1;
    case "PageDown":
      return Math.min(now - 1, offsetAt(log, Math.max(0, place - PAGE_STEP)));
    case "PageUp":
      return Math.max(now + 1, offsetAt(log, Math.min(1, place + PAGE_STEP)));
    case "Home":
      return log.first?.offset ?? null;
    case "End":
      return log.last?.offset ?? null;
    default:
      return null;
  }
}

/** Returns a function that is called at most once in a pause, and always with the last value. */
function usePaused(call: (value: number) => void): (value: number) => void {
  const waiting = useRef<number | null>(null);
  const timer = useRef<number | undefined>(undefined);
  const run = (): void => {
    timer.current = undefined;
    if (waiting.current === null) return;
    call(waiting.current);
    waiting.current = null;
    timer.current = window.setTimeout(run, PAUSE_MS);
  };
  return (value) => {
    waiting.current = value;
    if (timer.current === undefined) run();
  };
}
