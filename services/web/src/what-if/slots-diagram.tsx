// Slots over time: the upper half of each row is what really happened, the lower half the simulation.

import { useMemo, useState } from "preact/hooks";
import type { WhatIfResult, WhatIfSlot, WhatIfSpan } from "../api/openapi";
import { hueOf } from "../cluster/cluster-slots";
import { formatDuration, formatExactTime, formatPlural, formatTime } from "../formats";
import { TableCard, TableHead } from "../parts/table";
import { VirtualList } from "../parts/virtual-list";
import { labelOf, type SlotRow, toRows } from "./slot-rows";

const ROW_HEIGHT = 34;
const MAX_HEIGHT = 560;
const REALLY = "really";
const SIMULATED = "simulated";

export function SlotsDiagram({ result }: { result: WhatIfResult }) {
  const rows = useMemo(() => toRows(result), [result]);
  const [chosen, setChosen] = useState<string | null>(null);
  const row = rows.find((each) => each.name === chosen);
  const end = Math.max(result.end, result.really?.end ?? 0, result.start + 1);
  const known = Math.min(result.what_if.end, result.really?.end ?? result.what_if.end);
  return (
    <>
      <section class="card timeline slots" aria-label="Slots over time">
        <ul class="legend">
          {result.jobs.map((job, place) => (
            <li key={job.id}>
              <i class={hueOf(place)} aria-hidden="true" />
              {labelOf(result, place)}
            </li>
          ))}
          <li>
            <i class="held idle" aria-hidden="true" />
            held without a task
          </li>
          <li>
            <i class="held again" aria-hidden="true" />a later attempt
          </li>
          <li>
            <i class="free" aria-hidden="true" />
            free
          </li>
        </ul>
        <p class="muted small">
          {result.really === null
            ? "Each row is a slot in the simulation."
            : "Each row is a slot: above what really happened, below the simulation."}{" "}
          Choose a slot to read who held it.
        </p>
        <div class="axis number small muted" aria-hidden="true">
          <span>{formatTime(result.start)}</span>
          <span>{formatDuration(end - result.start)}</span>
          <span>{formatTime(end)}</span>
        </div>
        <VirtualList items={rows} rowHeight={ROW_HEIGHT} maxHeight={MAX_HEIGHT} label="Slots">
          {(each) => (
            <DiagramRow
              row={each}
              result={result}
              end={end}
              isChosen={each.name === chosen}
              onChoose={() => setChosen(each.name === chosen ? null : each.name)}
            />
          )}
        </VirtualList>
        {known < Math.min(result.end, result.really?.end ?? result.end) && (
          <p class="muted small">
            The slots are known until {formatTime(known)}: later there are too many changes.
          </p>
        )}
      </section>
      {row !== undefined && <Holders row={row} result={result} />}
    </>
  );
}

interface DiagramRowProps {
  readonly row: SlotRow;
  readonly result: WhatIfResult;
  readonly end: number;
  readonly isChosen: boolean;
  readonly onChoose: () => void;
}

function DiagramRow({ row, result, end, isChosen, onChoose }: DiagramRowProps) {
  return (
    <div class="lane">
      <button
        type="button"
        class="quiet small number"
        aria-pressed={isChosen}
        onClick={onChoose}
        title={row.name}
      >
        {row.name}
      </button>
      <div class="pair">
        {result.really !== null && <Track slot={row.really} what={REALLY} result={result} end={end} />}
        <Track slot={row.simulated} what={SIMULATED} result={result} end={end} />
      </div>
    </div>
  );
}

interface TrackProps {
  readonly slot: WhatIfSlot | undefined;
  readonly what: string;
  readonly result: WhatIfResult;
  readonly end: number;
}

function Track({ slot, what, result, end }: TrackProps) {
  const share = (time: number) => ((time - result.start) / (end - result.start)) * 100;
  const place = (from: number, until: number) => ({
    left: `${share(from)}%`,
    width: `${Math.max(0, share(until) - share(from))}%`,
  });
  return (
    <div class="track">
      <span class="hidden-text">{`${what}: ${describeSlot(slot, result)}`}</span>
      {slot?.present.map((period) => (
        <i key={period.start} class="present" style={place(period.start, period.end)} />
      ))}
      {slot?.spans.map((span) => (
        <i
          key={span.start}
          class={classOf(span)}
          style={place(span.start, span.end)}
          title={`${what}: ${labelOf(result, span.job)} for ${formatDuration(span.end - span.start)}\n${span.tasks.join("\n") || "no task"}`}
        />
      ))}
    </div>
  );
}

function classOf(span: WhatIfSpan): string {
  const idle = span.tasks.length === 0 ? " idle" : "";
  return `held ${hueOf(span.job)}${idle}${span.attempt > 0 ? " again" : ""}`;
}

function describeSlot(slot: WhatIfSlot | undefined, result: WhatIfResult): string {
  if (slot === undefined) return "the slot is not there";
  const names = new Set(slot.spans.map((span) => labelOf(result, span.job)));
  return names.size === 0 ? "free" : `held by ${[...names].join(", ")}`;
}

/** Who held one slot, in words. */
function Holders({ row, result }: { row: SlotRow; result: WhatIfResult }) {
  const spans = [
    ...(row.really?.spans.map((span) => ({ span, what: REALLY })) ?? []),
    ...(row.simulated?.spans.map((span) => ({ span, what: SIMULATED })) ?? []),
  ];
  return (
    <>
      <h3>
        Slot {row.name}: {formatPlural(spans.length, "time")} held
      </h3>
      {spans.length > 0 && (
        <TableCard label={`Who held slot ${row.name}`}>
          <TableHead columns={["Part", "From", { number: "For" }, "Job", "Tasks"]} />
          <tbody>
            {spans.map(({ span, what }) => (
              <tr key={`${what} ${span.start}`}>
                <td class="muted">{what}</td>
                <td class="nowrap" title={formatExactTime(span.start)}>
                  {formatTime(span.start)}
                </td>
                <td class="right nowrap">{formatDuration(span.end - span.start)}</td>
                <td>{labelOf(result, span.job)}</td>
                <td class="about">{span.tasks.join("; ") || "none"}</td>
              </tr>
            ))}
          </tbody>
        </TableCard>
      )}
    </>
  );
}
