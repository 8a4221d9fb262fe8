// One vertex: its subtasks as small diagrams of one scale, so that a slow one is seen beside the others.

import { useEffect, useState } from "preact/hooks";
import type { VertexSubtask, VertexSubtasks } from "../api/openapi";
import { useQuery } from "../api/use-query";
import { formatCompact, formatCount, formatRate, formatTime, NONE } from "../formats";
import { at } from "../moment";
import { Figures } from "../parts/figures";
import { Empty, Loaded } from "../parts/states";
import { Status, toneOf } from "../parts/status";
import { useWidth } from "../parts/use-width";
import { VirtualList } from "../parts/virtual-list";
import { linkTo } from "../routing";
import { addSamples, NO_SAMPLES, type Samples } from "./subtask-samples";

const REFRESH_MS = 3_000;
const TILE_WIDTH = 224;
const ROW_HEIGHT = 158;
const MAX_HEIGHT = 640;
const LINE_WIDTH = 200;
const LINE_HEIGHT = 34;

interface VertexViewProps {
  readonly job: string;
  readonly vertex: string;
  /** Whether its TaskExecutors can be asked. */
  readonly isLive: boolean;
}

export function VertexView({ job, vertex, isLive }: VertexViewProps) {
  const hasLoads = isLive && at.value === null;
  const subtasks = useQuery(
    "/api/v1/jobs/{jobid}/vertices/{vertexid}/subtasks",
    { jobid: job, vertexid: vertex },
    hasLoads ? { refresh: REFRESH_MS } : {},
  );
  return (
    <>
      <p class="small">
        <a href={linkTo(["jobs", job])}>All vertices</a>
      </p>
      <Loaded query={subtasks}>{(body) => <Vertex body={body} hasLoads={hasLoads} />}</Loaded>
    </>
  );
}

function Vertex({ body, hasLoads }: { body: VertexSubtasks; hasLoads: boolean }) {
  const [samples, setSamples] = useState<Samples>(NO_SAMPLES);
  const [box, width] = useWidth<HTMLElement>();
  useEffect(() => {
    if (hasLoads) setSamples((before) => addSamples(before, body));
  }, [body, hasLoads]);

  const columns = Math.max(1, Math.floor(width / TILE_WIDTH));
  const rows: VertexSubtask[][] = [];
  for (let first = 0; first < body.subtasks.length; first += columns) {
    rows.push(body.subtasks.slice(first, first + columns));
  }
  return (
    <section ref={box} aria-label={`Subtasks of ${body.name}`}>
      <h2>{body.name}</h2>
      <Summary body={body} />
      {body.subtasks.length === 0 ? (
        <Empty>The vertex has no subtask at this moment.</Empty>
      ) : (
        <>
          <ul class="legend">
            {["busy", "back-pressured", "idle"].map((name) => (
              <li key={name}>
                <i class={`load ${name}`} aria-hidden="true" />
                {name}
              </li>
            ))}
          </ul>
          {width > 0 && (
            <VirtualList items={rows} rowHeight={ROW_HEIGHT} maxHeight={MAX_HEIGHT} label="Subtasks">
              {(row) => (
                <div class="tiles" style={{ gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))` }}>
                  {row.map((each) => (
                    <Tile key={each.subtask} subtask={each} samples={samples} />
                  ))}
                </div>
              )}
            </VirtualList>
          )}
          {!hasLoads && (
            <p class="muted small">
              Rates and loads are those of running tasks now: the log does not have them.
            </p>
          )}
        </>
      )}
    </section>
  );
}

function Summary({ body }: { body: VertexSubtasks }) {
  const loads = body.subtasks.flatMap(({ subtask, load }) => (load === null ? [] : [{ subtask, load }]));
  const running = body.subtasks.filter((each) => each.state === "RUNNING").length;
  const busiest = loads.reduce<(typeof loads)[number] | null>(
    (most, each) => (most === null || each.load.busy > most.load.busy ? each : most),
    null,
  );
  const lags = loads.flatMap(({ load }) => (load.pending_records === null ? [] : [load.pending_records]));
  const sum = (name: "records_in_per_second" | "records_out_per_second") =>
    formatRate(loads.reduce((total, { load }) => total + load[name], 0));
  return (
    <Figures
      of={[
        ["Running", `${formatCount(running)} of ${formatCount(body.subtasks.length)}`],
        ["Records in", loads.length === 0 ? NONE : sum("records_in_per_second")],
        ["Records out", loads.length === 0 ? NONE : sum("records_out_per_second")],
        ["Busiest subtask", busiest === null ? NONE : `${busiest.subtask}: ${percent(busiest.load.busy)}`],
        ["Lag", lags.length === 0 ? NONE : formatCount(lags.reduce((total, each) => total + each, 0))],
      ]}
    />
  );
}

function Tile({
  subtask: { subtask, attempt, state, task_executor, load },
  samples,
}: {
  subtask: VertexSubtask;
  samples: Samples;
}) {
  return (
    <article class={`tile ${toneOf(state)}`} aria-label={`Subtask ${subtask}`}>
      <header>
        <b class="number">{subtask}</b>
        <Status of={state} />
      </header>
      <p class="small muted where" title={task_executor ?? ""}>
        {task_executor ?? "not deployed"}
        {attempt > 0 && `, attempt ${attempt + 1}`}
      </p>
      {load !== null && (
        <>
          <RateLine rates={samples.rates.get(subtask) ?? []} largest={samples.largest} />
          <p class="small number">
            {formatRate(load.records_in_per_second)} in, {formatRate(load.records_out_per_second)} out
          </p>
          <div
            class="bar parts"
            role="img"
            aria-label={`Busy ${percent(load.busy)}, back-pressured ${percent(load.back_pressured)}, idle ${percent(load.idle)}`}
            title={`busy ${percent(load.busy)}, back-pressured ${percent(load.back_pressured)}, idle ${percent(load.idle)}`}
          >
            <i class="load busy" style={{ flexGrow: String(load.busy) }} />
            <i class="load back-pressured" style={{ flexGrow: String(load.back_pressured) }} />
            <i class="load idle" style={{ flexGrow: String(load.idle) }} />
          </div>
          <p class="small muted number">
            {load.pending_records !== null && `Lag ${formatCompact(load.pending_records)} `}
            {load.watermark !== null && `Watermark ${formatTime(load.watermark)}`}
          </p>
        </>
      )}
    </article>
  );
}

/** The records per second over the last minutes. */
function RateLine({ rates, largest }: { rates: readonly number[]; largest: number }) {
  const step = LINE_WIDTH / Math.max(1, rates.length - 1);
  const points = rates.map((rate, index) => [
    rates.length === 1 ? LINE_WIDTH : index * step,
    LINE_HEIGHT - 1 - (rate / largest) * (LINE_HEIGHT - 2),
  ]);
  return (
    <svg
      class="rates"
      viewBox={`0 0 ${LINE_WIDTH} ${LINE_HEIGHT}`}
      preserveAspectRatio="none"
      aria-hidden="true"
    >
      <polyline points={points.map((point) => point.join(",")).join(" ")} />
    </svg>
  );
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}
