// Lines of a history in words, as `tailrace story` prints them: one event, or several similar ones, in each.

import type { AnswerOf } from "../api/client";
import { formatCount, formatDuration, formatExactTime, formatTime, NONE } from "../formats";
import { TableCard, TableHead } from "../parts/table";
import { EventLink } from "./event-link";

export type HistoryLine = AnswerOf<"/api/v1/events/{offset}/causes">["lines"][number];

/** Causes that waited longer say so. */
const LONG_WAIT_US = 100_000;

export function HistoryLines({ label, lines }: { label: string; lines: readonly HistoryLine[] }) {
  return (
    <TableCard label={label}>
      <TableHead columns={[{ number: "Offset" }, "Time", "Who", "What", { number: "Cause" }]} />
      <tbody>
        {lines.map((line) => (
          <tr key={line.offset} class={toneOf(line)}>
            <td class="right">
              <EventLink offset={line.offset} />
            </td>
            <td class="number nowrap" title={formatExactTime(line.time / 1000)}>
              {formatTime(line.time / 1000)}
            </td>
            <td>{line.who}</td>
            <td class="about">
              <LineText line={line} />
            </td>
            <td class="right">{line.cause === null ? NONE : <EventLink offset={line.cause} />}</td>
          </tr>
        ))}
      </tbody>
    </TableCard>
  );
}

/** The text of a line, with the number of events and the time that the sender waited. */
export function LineText({ line }: { line: HistoryLine }) {
  return (
    <>
      {line.text}
      {line.count > 1 && <span class="muted"> ({formatCount(line.count)} events)</span>}
      {line.waited !== null && line.waited > LONG_WAIT_US && (
        <span class="muted"> after {formatDuration(line.waited / 1000)}</span>
      )}
      {line.mark === "!!" && <b class="bad"> root cause</b>}
      {line.mark === "x" && <span class="muted"> (ignored)</span>}
    </>
  );
}

function toneOf(line: HistoryLine): string {
  return line.mark === "!" || line.mark === "!!" ? "failure-line" : line.mark === "x" ? "muted" : "";
}
