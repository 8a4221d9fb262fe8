// The checkpoints of a job: how many, how long, how large, and which subtasks were late.

import { useState } from "preact/hooks";
import type { AnswerOf } from "../api/client";
import { useQuery } from "../api/use-query";
import { formatBytes, formatCount, formatDuration, formatExactTime, formatTime } from "../formats";
import { Figures } from "../parts/figures";
import { Empty, Loaded } from "../parts/states";
import { Status } from "../parts/status";
import { TableCard, TableHead } from "../parts/table";
import { CheckpointTasks } from "./checkpoint-tasks";

type Statistics = AnswerOf<"/v1/jobs/{jobid}/checkpoints">;
type Checkpoint = Statistics["history"][number];

export function CheckpointsView({ id }: { id: string }) {
  const checkpoints = useQuery("/v1/jobs/{jobid}/checkpoints", { jobid: id });
  const configuration = useQuery("/v1/jobs/{jobid}/checkpoints/config", { jobid: id }, { refresh: "never" });
  const [selected, setSelected] = useState<number | null>(null);
  return (
    <Loaded query={checkpoints}>
      {(body) => (
        <>
          <Figures
            of={[
              ["Complete", formatCount(body.counts.completed)],
              ["Failed", formatCount(body.counts.failed)],
              ["In progress", formatCount(body.counts.in_progress)],
              ["Restored", formatCount(body.counts.restored)],
              ["Median duration", statistic(body.summary.end_to_end_duration.p50, formatDuration)],
              ["99 % below", statistic(body.summary.end_to_end_duration.p99, formatDuration)],
              ["Median state", statistic(body.summary.state_size.p50, formatBytes)],
              ...(configuration.body === null
                ? []
                : [
                    ["Interval", interval(configuration.body.interval)] as const,
                    ["Mode", configuration.body.mode.replaceAll("_", " ")] as const,
                  ]),
            ]}
          />
          {body.latest.restored !== null && (
            <p class="muted">
              Restored checkpoint {body.latest.restored.id} at{" "}
              {formatTime(body.latest.restored.restore_timestamp)}
            </p>
          )}
          {body.history.length === 0 ? (
            <Empty>There is no checkpoint yet.</Empty>
          ) : (
            <>
              <Chart history={body.history} />
              <History
                history={body.history}
                selected={selected}
                onSelect={(checkpoint) => setSelected(checkpoint === selected ? null : checkpoint)}
              />
            </>
          )}
          {selected !== null && <CheckpointTasks job={id} checkpoint={selected} />}
        </>
      )}
    </Loaded>
  );
}

function statistic(value: number | "NaN", format: (value: number) => string): string {
  return value === "NaN" ? "–" : format(value);
}

/** The largest number of Flink's API stands for: never. */
function interval(ms: number): string {
  return ms > 1e15 ? "off" : formatDuration(ms);
}

/** The durations of the last checkpoints, oldest first. */
function Chart({ history }: { history: readonly Checkpoint[] }) {
  const shown = [...history].reverse();
  const longest = Math.max(1, ...shown.map((each) => each.end_to_end_duration));
  return (
    <section class="card chart" aria-label="Durations of the last checkpoints">
      <h2>Durations</h2>
      <div class="columns">
        {shown.map((each) => (
          <div key={each.id} class="column">
            <span class="small muted number">{formatDuration(each.end_to_end_duration)}</span>
            <i
              class={each.status === "FAILED" ? "bad" : each.status === "IN_PROGRESS" ? "busy" : "done"}
              style={{ height: `${Math.max(2, (each.end_to_end_duration / longest) * 96)}px` }}
            />
            <span class="small number">{each.id}</span>
          </div>
        ))}
      </div>
    </section>
  );
}

interface HistoryProps {
  readonly history: readonly Checkpoint[];
  readonly selected: number | null;
  readonly onSelect: (checkpoint: number) => void;
}

function History({ history, selected, onSelect }: HistoryProps) {
  return (
    <TableCard label="Checkpoints">
      <TableHead
        columns={[
          "Id",
          "Status",
          "Type",
          "Triggered",
          { number: "Duration" },
          { number: "Acknowledged" },
          { number: "State" },
          { number: "Written" },
          "Where or why",
        ]}
      />
      <tbody>
        {history.map((each) => (
          <tr key={each.id}>
            <td>
              <button
                type="button"
                class="small"
                aria-expanded={each.id === selected}
                onClick={() => onSelect(each.id)}
              >
                {each.id}
              </button>
            </td>
            <td>
              <Status of={each.status} />
            </td>
            <td>{each.checkpoint_type.replaceAll("_", " ").toLowerCase()}</td>
            <td class="nowrap" title={formatExactTime(each.trigger_timestamp)}>
              {formatTime(each.trigger_timestamp)}
            </td>
            <td class="right nowrap">{formatDuration(each.end_to_end_duration)}</td>
            <td class="right nowrap">
              {formatCount(each.num_acknowledged_subtasks)} of {formatCount(each.num_subtasks)}
            </td>
            <td class="right nowrap">{formatBytes(each.state_size)}</td>
            <td class="right nowrap">{formatBytes(each.checkpointed_size)}</td>
            <td class="small path">
              {each.failure_message ?? each.external_path}
              {each.discarded === true && <span class="muted"> (deleted)</span>}
            </td>
          </tr>
        ))}
      </tbody>
    </TableCard>
  );
}
