// One checkpoint by vertex and subtask: who acknowledged last, and who has not yet.

import type { AnswerOf } from "../api/client";
import { useQuery } from "../api/use-query";
import { formatBytes, formatDuration, NONE } from "../formats";
import { Empty, Loaded } from "../parts/states";
import { TableCard, TableHead } from "../parts/table";

type Subtask =
  AnswerOf<"/v1/jobs/{jobid}/checkpoints/details/{checkpointid}/subtasks/{vertexid}">["subtasks"][number];

/** How many of the latest subtasks of a vertex are shown. */
const LATEST = 8;

export function CheckpointTasks({ job, checkpoint }: { job: string; checkpoint: number }) {
  const values = { jobid: job, checkpointid: checkpoint };
  const details = useQuery("/v1/jobs/{jobid}/checkpoints/details/{checkpointid}", values);
  const graph = useQuery("/v1/jobs/{jobid}", { jobid: job }, { refresh: "never" });
  const names = new Map(graph.body?.vertices.map((vertex) => [vertex.id, vertex.name]));
  return (
    <>
      <h2>Checkpoint {checkpoint}: the latest subtasks</h2>
      <Loaded query={details}>
        {(body) =>
          Object.keys(body.tasks).length === 0 ? (
            <Empty>Nothing is known of its subtasks.</Empty>
          ) : (
            Object.keys(body.tasks).map((vertex) => (
              <VertexSubtasks
                key={vertex}
                job={job}
                checkpoint={checkpoint}
                vertex={vertex}
                name={names.get(vertex) ?? vertex}
              />
            ))
          )
        }
      </Loaded>
    </>
  );
}

interface VertexSubtasksProps {
  readonly job: string;
  readonly checkpoint: number;
  readonly vertex: string;
  readonly name: string;
}

function VertexSubtasks({ job, checkpoint, vertex, name }: VertexSubtasksProps) {
  const found = useQuery("/v1/jobs/{jobid}/checkpoints/details/{checkpointid}/subtasks/{vertexid}", {
    jobid: job,
    checkpointid: checkpoint,
    vertexid: vertex,
  });
  return (
    <Loaded query={found}>
      {({ subtasks }) => (
        <TableCard label={`Subtasks of ${name}`}>
          <caption>{name}</caption>
          <TableHead
            columns={[
              "Subtask",
              { number: "Acknowledged after" },
              { number: "Start delay" },
              { number: "Alignment" },
              { number: "Sync, async" },
              { number: "State" },
              { number: "In flight" },
            ]}
          />
          <tbody>
            {latestFirst(subtasks)
              .slice(0, LATEST)
              .map((each) => (
                <tr key={each.index}>
                  <td>{each.index}</td>
                  <td class="right">
                    {each.end_to_end_duration === undefined ? (
                      <b class="warn">not yet</b>
                    ) : (
                      formatDuration(each.end_to_end_duration)
                    )}
                  </td>
                  <td class="right">
                    {each.start_delay === undefined ? NONE : formatDuration(each.start_delay)}
                  </td>
                  <td class="right">
                    {each.alignment === undefined ? NONE : formatDuration(each.alignment.duration)}
                  </td>
                  <td class="right">
                    {each.checkpoint === undefined
                      ? NONE
                      : `${formatDuration(each.checkpoint.sync)}, ${formatDuration(each.checkpoint.async)}`}
                  </td>
                  <td class="right">{each.state_size === undefined ? NONE : formatBytes(each.state_size)}</td>
                  <td class="right">
                    {each.alignment === undefined ? NONE : formatBytes(each.alignment.persisted)}
                  </td>
                </tr>
              ))}
          </tbody>
        </TableCard>
      )}
    </Loaded>
  );
}

/** Those that have not acknowledged are the latest. */
function latestFirst(subtasks: readonly Subtask[]): Subtask[] {
  const duration = (each: Subtask) => each.end_to_end_duration ?? Number.POSITIVE_INFINITY;
  return [...subtasks].sort((one, other) => duration(other) - duration(one) || one.index - other.index);
}
