// The graph of a job: its vertices, what they do now, and the state of each subtask as a square.

import type { AnswerOf } from "../api/client";
import { useQuery } from "../api/use-query";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatPlural,
  formatRate,
  formatTime,
  NONE,
} from "../formats";
import { at } from "../moment";
import { Cells } from "../parts/cells";
import { Bar } from "../parts/figures";
import { Empty, Loaded } from "../parts/states";
import { Status, toneOf } from "../parts/status";
import { TableCard, TableHead } from "../parts/table";
import { linkTo } from "../routing";
import { PlanGraph } from "./plan-graph";
import { useVertexFigures, type VertexFigures } from "./vertex-figures";

type Job = AnswerOf<"/v1/jobs/{jobid}">;
type Vertex = Job["vertices"][number];
type Attempts = AnswerOf<"/api/v1/jobs/{jobid}/attempts">;
type VertexAttempts = Attempts["vertices"][number];

/** With figures, and without. */
const NODE_HEIGHT = { live: 168, still: 116 };
/** The most subtasks that a vertex shows as squares; of more it shows how many are in each state. */
const MOST_CELLS = 240;
/** Of a job with more subtasks, none are shown as squares: their attempts would be read again with each event. */
const MOST_ATTEMPTS = 2_000;
const COLUMNS = 24;

export function GraphView({ id, isLive }: { id: string; isLive: boolean }) {
  const job = useQuery("/v1/jobs/{jobid}", { jobid: id });
  const subtasks = job.body?.vertices.reduce((sum, vertex) => sum + vertex.parallelism, 0);
  const attempts = useQuery(
    "/api/v1/jobs/{jobid}/attempts",
    { jobid: id },
    { enabled: subtasks !== undefined && subtasks <= MOST_ATTEMPTS },
  );
  return (
    <Loaded query={job}>
      {(body) =>
        body.vertices.length === 0 ? (
          <Empty>The job has no graph yet: its program is not built.</Empty>
        ) : (
          <Graph job={body} attempts={attempts.body} isLive={isLive} />
        )
      }
    </Loaded>
  );
}

function Graph({ job, attempts, isLive }: { job: Job; attempts: Attempts | null; isLive: boolean }) {
  const nodeHeight = isLive && at.value === null ? NODE_HEIGHT.live : NODE_HEIGHT.still;
  const ids = job.vertices.map((vertex) => vertex.id);
  const figures = useVertexFigures(job.jid, ids, isLive);
  const byId = new Map(job.vertices.map((vertex) => [vertex.id, vertex]));
  const attemptsOf = new Map(attempts?.vertices.map((vertex) => [vertex.id, vertex]));
  return (
    <>
      <PlanGraph
        plan={job.plan}
        nodeHeight={nodeHeight}
        label="Graph of the job"
        toneOfVertex={(id) => toneOf(byId.get(id)?.status ?? "")}
      >
        {(id) => {
          const vertex = byId.get(id);
          return (
            vertex !== undefined && (
              <VertexCard
                job={job.jid}
                vertex={vertex}
                attempts={attemptsOf.get(id)}
                figures={figures.get(id)}
              />
            )
          );
        }}
      </PlanGraph>
      <VertexTable job={job} figures={figures} />
    </>
  );
}

interface VertexCardProps {
  readonly job: string;
  readonly vertex: Vertex;
  readonly attempts: VertexAttempts | undefined;
  readonly figures: VertexFigures | undefined;
}

function VertexCard({ job, vertex, attempts, figures = {} }: VertexCardProps) {
  return (
    <>
      <h2 title={vertex.name}>
        <a href={linkTo(["jobs", job, "vertices", vertex.id])}>{vertex.name}</a>
      </h2>
      <p class="small">
        <Status of={vertex.status} /> <span class="muted">{formatPlural(vertex.parallelism, "subtask")}</span>
      </p>
      <Subtasks vertex={vertex} attempts={attempts} />
      {figures.recordsInPerSecond !== undefined && (
        <dl>
          <Row
            name="Records"
            value={`${rate(figures.recordsInPerSecond)} in, ${rate(figures.recordsOutPerSecond)} out`}
          />
          {figures.watermark !== undefined && <Row name="Watermark" value={formatTime(figures.watermark)} />}
        </dl>
      )}
      {figures.busy !== undefined && (
        <div class="loads small muted">
          <span>Busy</span>
          <Bar share={figures.busy} tone="busy" label="Busy" />
          <span>Back-pressured</span>
          <Bar share={figures.backPressured ?? 0} tone="bad" label="Back-pressured" />
        </div>
      )}
    </>
  );
}

function Row({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function rate(perSecond: number | undefined): string {
  return perSecond === undefined ? NONE : formatRate(perSecond);
}

function Subtasks({ vertex, attempts }: { vertex: Vertex; attempts: VertexAttempts | undefined }) {
  const known = Object.entries(vertex.tasks).filter(([, count]) => count > 0);
  const text = known.map(([state, count]) => `${formatCount(count)} ${state.toLowerCase()}`).join(", ");
  if (attempts === undefined || attempts.parallelism > MOST_CELLS) return <p class="small">{text}</p>;
  const current = attempts.attempts.filter((attempt) => attempt.is_current);
  const states = current.map((attempt) => Object.keys(attempt.times).at(-1) ?? "CREATED");
  return (
    <Cells
      classes={states.map(toneOf)}
      columns={COLUMNS}
      label={`Subtasks: ${text}`}
      describe={(index) => {
        const attempt = current[index];
        return `Subtask ${index}: ${states[index]?.toLowerCase()}, attempt ${(attempt?.attempt ?? 0) + 1}, ${attempt?.task_executor ?? "not deployed"}`;
      }}
    />
  );
}

function VertexTable({ job, figures }: { job: Job; figures: ReadonlyMap<string, VertexFigures> }) {
  return (
    <TableCard label="Vertices">
      <TableHead
        columns={[
          "Vertex",
          "Status",
          { number: "Subtasks" },
          { number: "Duration" },
          { number: "Records in" },
          { number: "Records out" },
          { number: "Bytes in" },
          { number: "Bytes out" },
          "Watermark",
        ]}
      />
      <tbody>
        {job.vertices.map((vertex) => {
          const now = figures.get(vertex.id) ?? {};
          const { metrics } = vertex;
          return (
            <tr key={vertex.id}>
              <td>
                <a href={linkTo(["jobs", job.jid, "vertices", vertex.id])}>{vertex.name}</a>
              </td>
              <td>
                <Status of={vertex.status} />
              </td>
              <td class="right">{formatCount(vertex.parallelism)}</td>
              <td class="right nowrap">{formatDuration(vertex.duration)}</td>
              <td class="right nowrap">
                <Total total={metrics["read-records"]} perSecond={now.recordsInPerSecond} format={RECORDS} />
              </td>
              <td class="right nowrap">
                <Total
                  total={metrics["write-records"]}
                  perSecond={now.recordsOutPerSecond}
                  format={RECORDS}
                />
              </td>
              <td class="right nowrap">
                <Total total={metrics["read-bytes"]} perSecond={now.bytesInPerSecond} format={BYTES} />
              </td>
              <td class="right nowrap">
                <Total total={metrics["write-bytes"]} perSecond={now.bytesOutPerSecond} format={BYTES} />
              </td>
              <td class="nowrap">{now.watermark === undefined ? NONE : formatTime(now.watermark)}</td>
            </tr>
          );
        })}
      </tbody>
    </TableCard>
  );
}

interface UnitFormat {
  readonly total: (value: number) => string;
  readonly perSecond: (value: number) => string;
}

const RECORDS: UnitFormat = { total: formatCount, perSecond: formatRate };
const BYTES: UnitFormat = { total: formatBytes, perSecond: (value) => `${formatBytes(value)}/s` };

interface TotalProps {
  readonly total: number;
  readonly perSecond: number | undefined;
  readonly format: UnitFormat;
}

function Total({ total, perSecond, format }: TotalProps) {
  return (
    <>
      {total === 0 && perSecond === undefined ? NONE : format.total(total)}
      {perSecond !== undefined && <div class="muted small">{format.perSecond(perSecond)}</div>}
    </>
  );
}
