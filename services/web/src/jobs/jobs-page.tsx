// All jobs: those that run first, then those that have ended, newest first.

import { useState } from "preact/hooks";
import type { AnswerOf } from "../api/client";
import { useQuery } from "../api/use-query";
import { formatBytes, formatCount, formatDuration, formatExactTime, formatTime, NONE } from "../formats";
import { Figures, StateBar } from "../parts/figures";
import { Empty, Loaded } from "../parts/states";
import { Status } from "../parts/status";
import { TableCard, TableHead } from "../parts/table";
import { linkTo } from "../routing";

type Job = AnswerOf<"/api/v1/jobs">["jobs"][number];

/** Rows that are shown at first, and that each click adds. */
const PART = 100;

export function JobsPage() {
  const jobs = useQuery("/api/v1/jobs");
  return (
    <>
      <h1>Jobs</h1>
      <Loaded query={jobs}>
        {(body) =>
          body.jobs.length === 0 ? (
            <Empty>
              No job was submitted. <code>tailrace run program.py</code> submits one.
            </Empty>
          ) : (
            <JobLists jobs={body.jobs} />
          )
        }
      </Loaded>
    </>
  );
}

function JobLists({ jobs }: { jobs: readonly Job[] }) {
  const newestFirst = [...jobs].reverse();
  const running = newestFirst.filter((job) => job.ended < 0);
  const ended = newestFirst.filter((job) => job.ended >= 0);
  const count = (status: string) => formatCount(jobs.filter((job) => job.status === status).length);
  return (
    <>
      <Figures
        of={[
          ["Running", count("RUNNING")],
          ["Finished", count("FINISHED")],
          ["Cancelled", count("CANCELED")],
          ["Failed", count("FAILED")],
        ]}
      />
      <h2>Not ended</h2>
      {running.length === 0 ? (
        <Empty>No job runs.</Empty>
      ) : (
        <JobTable label="Jobs that have not ended" jobs={running} />
      )}
      {ended.length > 0 && (
        <>
          <h2>Ended</h2>
          <JobTable label="Jobs that have ended" jobs={ended} />
        </>
      )}
    </>
  );
}

function JobTable({ label, jobs }: { label: string; jobs: readonly Job[] }) {
  const [shown, setShown] = useState(PART);
  return (
    <>
      <TableCard label={label}>
        <TableHead
          columns={[
            "Name",
            "Status",
            "Tasks",
            "Submitted",
            { number: "Duration" },
            { number: "Restarts" },
            { number: "Checkpoints" },
            { number: "State" },
          ]}
        />
        <tbody>
          {jobs.slice(0, shown).map((job) => (
            <JobRow key={job.id} job={job} />
          ))}
        </tbody>
      </TableCard>
      {jobs.length > shown && (
        <p>
          <button type="button" onClick={() => setShown(shown + PART)}>
            Show more of {formatCount(jobs.length)}
          </button>
        </p>
      )}
    </>
  );
}

function JobRow({ job }: { job: Job }) {
  return (
    <tr>
      <td>
        <a href={linkTo(["jobs", job.id])}>{job.name}</a>
        {job.tenant !== "" && <span class="muted small"> {job.tenant}</span>}
        {job.reason !== null && <div class="muted small clamp">{job.reason}</div>}
      </td>
      <td>
        <Status of={job.status} />
        {job.missing_slots > 0 && (
          <div class="muted small">{formatCount(job.missing_slots)} slots missing</div>
        )}
      </td>
      <td>
        <StateBar tasks={job.tasks} />
      </td>
      <td class="nowrap" title={formatExactTime(job.submitted)}>
        {formatTime(job.submitted)}
      </td>
      <td class="right nowrap">{formatDuration(job.duration)}</td>
      <td class="right">{job.restarts === null ? NONE : formatCount(job.restarts)}</td>
      <td class="right">
        {formatCount(job.completed_checkpoints)}
        {job.failed_checkpoints > 0 && (
          <span class="bad"> +{formatCount(job.failed_checkpoints)} failed</span>
        )}
      </td>
      <td class="right nowrap">{job.last_checkpoint < 0 ? NONE : formatBytes(job.last_checkpoint_size)}</td>
    </tr>
  );
}
