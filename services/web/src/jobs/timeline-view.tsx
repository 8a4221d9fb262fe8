// Every attempt of every subtask over time, in the colours of its states.

import { useMemo } from "preact/hooks";
import type { AnswerOf } from "../api/client";
import { useQuery } from "../api/use-query";
import { formatDuration, formatExactTime, formatTime } from "../formats";
import { Empty, Loaded } from "../parts/states";
import { toneOf } from "../parts/status";
import { VirtualList } from "../parts/virtual-list";

type Attempts = AnswerOf<"/api/v1/jobs/{jobid}/attempts">;
type Attempt = Attempts["vertices"][number]["attempts"][number];

const ROW_HEIGHT = 22;
const MAX_HEIGHT = 560;
const ENDS = new Set(["FINISHED", "CANCELED", "FAILED"]);
const SHOWN_STATES = ["SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED", "CANCELED", "FAILED"];

interface Row {
  /** The name of a vertex before its subtasks. */
  readonly heading?: string;
  readonly subtask: number;
  readonly attempts: readonly Attempt[];
}

/** From when to when the diagram goes, in milliseconds since the epoch. */
interface Extent {
  readonly start: number;
  readonly end: number;
}

export function TimelineView({ id }: { id: string }) {
  const attempts = useQuery("/api/v1/jobs/{jobid}/attempts", { jobid: id });
  return <Loaded query={attempts}>{(body) => <Timeline body={body} />}</Loaded>;
}

function Timeline({ body }: { body: Attempts }) {
  const rows = useMemo(() => toRows(body), [body]);
  const extent = useMemo(() => extentOf(body), [body]);
  if (extent === null) return <Empty>No subtask was deployed.</Empty>;
  return (
    <section class="card timeline" aria-label="Attempts over time">
      <ul class="legend">
        {SHOWN_STATES.map((state) => (
          <li key={state}>
            <i class={`span ${state.toLowerCase()}`} aria-hidden="true" />
            {state.toLowerCase()}
          </li>
        ))}
      </ul>
      <div class="axis number small muted" aria-hidden="true">
        <span>{formatTime(extent.start)}</span>
        <span>{formatDuration(extent.end - extent.start)}</span>
        <span>{formatTime(extent.end)}</span>
      </div>
      <VirtualList items={rows} rowHeight={ROW_HEIGHT} maxHeight={MAX_HEIGHT} label="Attempts by subtask">
        {(row) => <TimelineRow row={row} extent={extent} />}
      </VirtualList>
      <p class="muted small">The history has the last two attempts of each subtask.</p>
    </section>
  );
}

function toRows(body: Attempts): Row[] {
  return body.vertices.flatMap((vertex) => {
    const bySubtask = new Map<number, Attempt[]>();
    for (const attempt of vertex.attempts) {
      const found = bySubtask.get(attempt.subtask) ?? [];
      found.push(attempt);
      bySubtask.set(attempt.subtask, found);
    }
    const rows = [...bySubtask].map(([subtask, attempts]) => ({ subtask, attempts: attempts.reverse() }));
    return [{ heading: vertex.name, subtask: -1, attempts: [] }, ...rows];
  });
}

function extentOf(body: Attempts): Extent | null {
  let start = Number.POSITIVE_INFINITY;
  let end = 0;
  for (const vertex of body.vertices) {
    for (const { times } of vertex.attempts) {
      const entered = Object.entries(times).filter(([, time]) => time > 0);
      for (const [, time] of entered) start = Math.min(start, time);
      const [state, time] = entered.at(-1) ?? ["", 0];
      end = Math.max(end, ENDS.has(state) ? time : body.now);
    }
  }
  return start > end ? null : { start, end: Math.max(end, start + 1) };
}

function TimelineRow({ row, extent }: { row: Row; extent: Extent }) {
  if (row.heading !== undefined) return <b class="heading">{row.heading}</b>;
  return (
    <div class="lane">
      <span class="number small muted">{row.subtask}</span>
      <div class="track">
        {row.attempts.map((attempt) => (
          <AttemptBar key={attempt.attempt} attempt={attempt} extent={extent} />
        ))}
      </div>
    </div>
  );
}

function AttemptBar({ attempt, extent }: { attempt: Attempt; extent: Extent }) {
  const entered = Object.entries(attempt.times).filter(([, time]) => time > 0);
  const place = (time: number) => ((time - extent.start) / (extent.end - extent.start)) * 100;
  const number = attempt.attempt + 1;
  const last = entered.at(-1)?.[0] ?? "";
  const text = `Attempt ${number} on ${attempt.task_executor ?? "no TaskExecutor"}: ${last.toLowerCase()}`;
  return (
    <span class="attempt">
      <span class="hidden-text">{text}</span>
      {entered.map(([state, time], index) => {
        const next = entered[index + 1]?.[1] ?? (ENDS.has(state) ? time : extent.end);
        return (
          <i
            key={state}
            class={`span ${state.toLowerCase()} ${toneOf(state)}`}
            style={{ left: `${place(time)}%`, width: `${Math.max(0, place(next) - place(time))}%` }}
            title={`${text}\n${state.toLowerCase()} since ${formatExactTime(time)}, for ${formatDuration(next - time)}`}
          />
        );
      })}
    </span>
  );
}
