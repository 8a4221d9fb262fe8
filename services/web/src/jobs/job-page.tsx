// One job: its head, and one of its views.

import { JobActions } from "../actions/job-actions";
import type { AnswerOf } from "../api/client";
import { useServer } from "../api/server";
import { useQuery } from "../api/use-query";
import { formatBytes, formatCount, formatDuration, formatExactTime, formatTime, NONE } from "../formats";
import { StoryView } from "../history/story-view";
import { Figures } from "../parts/figures";
import { Empty, Loaded } from "../parts/states";
import { Status } from "../parts/status";
import { type Tab, Tabs } from "../parts/tabs";
import { AccumulatorsView } from "./accumulators-view";
import { CheckpointsView } from "./checkpoints-view";
import { ConfigurationView } from "./configuration-view";
import { ExceptionsView } from "./exceptions-view";
import { GraphView } from "./graph-view";
import { OutputView } from "./output-view";
import { TimelineView } from "./timeline-view";
import { VertexView } from "./vertex-view";

type Progress = AnswerOf<"/api/v1/jobs/{jobid}">;

/** Of the addresses of single vertices; the graph links to them. */
const VERTICES = "vertices";
const OUTPUT: Tab = { path: "output", title: "Output" };
const TABS: readonly Tab[] = [
  { path: "", title: "Graph" },
  { path: "timeline", title: "Timeline" },
  { path: "exceptions", title: "Exceptions" },
  { path: "checkpoints", title: "Checkpoints" },
  { path: "accumulators", title: "Accumulators" },
  OUTPUT,
  { path: "story", title: "Story" },
  { path: "configuration", title: "Configuration" },
];

export function JobPage({ id, parts }: { id: string; parts: readonly string[] }) {
  const progress = useQuery("/api/v1/jobs/{jobid}", { jobid: id });
  const { isHistory } = useServer();
  const [view = "", vertex] = parts;
  return (
    <>
      {progress.body === null && <h1>Job</h1>}
      <Loaded query={progress}>
        {(body) => (
          <>
            <JobHead progress={body} />
            <JobActions id={id} status={body.job.status} isRunning={body.job.ended < 0} />
            <Tabs
              base={["jobs", id]}
              tabs={isHistory ? TABS.filter((tab) => tab !== OUTPUT) : TABS}
              current={view === VERTICES ? "" : view}
            />
            <JobView
              id={id}
              jobId={body.job.job_id}
              view={view}
              vertex={vertex}
              isRunning={body.job.ended < 0}
            />
          </>
        )}
      </Loaded>
    </>
  );
}

function JobView({
  id,
  jobId,
  view,
  vertex,
  isRunning,
}: {
  id: string;
  jobId: string;
  view: string;
  vertex: string | undefined;
  isRunning: boolean;
}) {
  const { isHistory } = useServer();
  switch (view) {
    case "":
      return <GraphView id={id} isLive={isRunning && !isHistory} />;
    case VERTICES:
      return vertex === undefined ? (
        <Empty>The address names no vertex.</Empty>
      ) : (
        <VertexView key={vertex} job={id} vertex={vertex} isLive={isRunning && !isHistory} />
      );
    case "timeline":
      return <TimelineView id={id} />;
    case "exceptions":
      return <ExceptionsView id={id} />;
    case "checkpoints":
      return <CheckpointsView id={id} />;
    case "accumulators":
      return <AccumulatorsView id={id} />;
    case "output":
      return isHistory ? <Empty>A history server has no output of jobs.</Empty> : <OutputView id={id} />;
    case "story":
      return <StoryView entity={`job:${jobId}`} isOver={!isRunning} />;
    case "configuration":
      return <ConfigurationView id={id} />;
    default:
      return <Empty>A job has no view {view}.</Empty>;
  }
}

function JobHead({ progress: { job, waits_for } }: { progress: Progress }) {
  const isRestartReason = job.ended < 0;
  // While all tasks run, it waits for checkpoints only, and all the time.
  const isComplete = job.tasks.RUNNING !== undefined && Object.keys(job.tasks).length === 1;
  return (
    <>
      <div class="title">
        <h1>{job.name}</h1>
        <Status of={job.status} />
      </div>
      <p class="muted small id">
        <code>{job.job_id}</code>
        {job.tenant !== "" && ` of tenant ${job.tenant}`}
      </p>
      {job.reason !== null && (
        <p class={`note ${job.status === "FAILED" || isRestartReason ? "bad" : ""}`}>
          {isRestartReason && <b>Tasks restart. </b>}
          {job.reason}
        </p>
      )}
      {waits_for.length > 0 && !isComplete && (
        <div class="note warn">
          <b>It waits for</b>
          <ul>
            {waits_for.map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        </div>
      )}
      <Figures
        of={[
          ["Submitted", <span title={formatExactTime(job.submitted)}>{formatTime(job.submitted)}</span>],
          ["Duration", formatDuration(job.duration)],
          [
            "Slots",
            `${formatCount(job.required_slots - job.missing_slots)} of ${formatCount(job.required_slots)}`,
          ],
          ["Restarts", job.restarts === null ? NONE : formatCount(job.restarts)],
          ["Checkpoints", formatCount(job.completed_checkpoints)],
          ["Last checkpoint", job.last_checkpoint < 0 ? NONE : formatTime(job.last_checkpoint)],
          ["State", job.last_checkpoint < 0 ? NONE : formatBytes(job.last_checkpoint_size)],
        ]}
      />
    </>
  );
}
