// The bar below the head of every page: the whole history of the log, and the moment of it that all pages show.

import { formatTime } from "../formats";
import { at, showMoment, toOffset } from "../moment";
import { HistorySlider } from "./history-slider";
import { type LogMark, type LogOverview, useLogOverview, useLogPoint } from "./log-overview";
import { Player } from "./player";

/** `isHistory`: the log has no present, only an end. */
export function TimeBar({ isHistory }: { isHistory: boolean }) {
  const log = useLogOverview();
  const moment = at.value;
  const point = useLogPoint(moment);
  if (log === null || log.first === null || log.last === null) return null;
  // An offset is known before its time is.
  const offset = moment === null ? log.last.offset : (toOffset(moment) ?? point?.offset ?? null);
  const last = isHistory ? "End" : "Now";
  return (
    <section class={moment === null ? "time-bar" : "time-bar past"} aria-label="Moment">
      {/* Once the point is known, the views of the moment are being read. */}
      <Player log={log} offset={moment === null ? offset : (point?.offset ?? null)} />
      <HistorySlider log={log} offset={offset} />
      <div class="moment">
        <span class="number">
          {moment === null ? last : point === null ? "" : formatTime(point.time / 1000)}
        </span>
        <span class="muted small number">{offset === null ? moment : `offset ${offset}`}</span>
      </div>
      <div class="buttons">
        <MarkButton mark={markBefore(log, offset)} label="Earlier mark" sign="‹" />
        <MarkButton mark={markAfter(log, offset)} label="Later mark" sign="›" />
        <button type="button" disabled={moment === null} onClick={() => showMoment(null)}>
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
function describeMark(mark: LogMark): string {
  const subject = mark.job == null ? "" : `${mark.job}: `;
  const times = mark.count > 1 ? ` (${mark.count} events)` : "";
  return `${subject}${mark.text}${times}`;
}
