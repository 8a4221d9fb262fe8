// The bar below the head of every page: the whole history of the log, and the moment of it that all pages show.

import { formatExactTime } from "../formats";
import { at, showMoment } from "../moment";
import { HistorySlider } from "./history-slider";
import { type LogMark, type LogOverview, useLogOverview, useLogPoint } from "./log-overview";
import { Player } from "./player";

/** `isHistory`: the log has no present, only an end. */
export function TimeBar({ isHistory }: { isHistory: boolean }) {
  const log = useLogOverview();
  const point = useLogPoint(at.value);
  if (log === null || log.first === null || log.last === null) return null;
  const shown = at.value === null ? log.last : (point ?? null);
  const offset = shown?.offset ?? null;
  const last = isHistory ? "End" : "Now";
  return (
    <section class={at.value === null ? "time-bar" : "time-bar past"} aria-label="Moment">
      <Player log={log} offset={offset} />
      <HistorySlider log={log} offset={offset} />
      <div class="moment">
        <span class="number">
          {at.value === null
            ? last
            : shown === null
              ? at.value
              : formatExactTime(shown.time / 1000).slice(0, 19)}
        </span>
        <span class="muted small number">{offset === null ? "" : `offset ${offset}`}</span>
      </div>
      <div class="buttons">
        <MarkButton mark={markBefore(log, offset)} label="Earlier mark" sign="‹" />
        <MarkButton mark={markAfter(log, offset)} label="Later mark" sign="›" />
        <button type="button" disabled={at.value === null} onClick={() => showMoment(null)}>
          {last}
        </button>
      </div>
    </section>
  );
}

function MarkButton({ mark, label, sign }: { mark: LogMark | undefined; label: string; sign: string }) {
  return (
    <button
      type="button"
      class="icon"
      aria-label={mark === undefined ? label : `${label}: ${describeMark(mark)}`}
      title={mark === undefined ? label : describeMark(mark)}
      disabled={mark === undefined}
      onClick={() => mark !== undefined && showMoment(String(mark.offset))}
    >
      {sign}
    </button>
  );
}

function markBefore(log: LogOverview, offset: number | null): LogMark | undefined {
  return log.marks.findLast((mark) => mark.offset < (offset ?? Number.POSITIVE_INFINITY));
}

function markAfter(log: LogOverview, offset: number | null): LogMark | undefined {
  return at.value === null ? undefined : log.marks.find((mark) => mark.offset > (offset ?? -1));
}

/** Returns a mark in words. */
export function describeMark(mark: LogMark): string {
  const subject = mark.job == null ? "" : `${mark.job}: `;
  const times = mark.count > 1 ? ` (${mark.count} events)` : "";
  return `${subject}${mark.text}${times}`;
}
