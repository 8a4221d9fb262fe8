// The cluster: who leads, what each TaskExecutor's slots hold, which are quarantined, and which requests for slots wait.

import type { AnswerOf } from "../api/client";
import { useServer } from "../api/server";
import { useQuery } from "../api/use-query";
import { formatBytes, formatCount, formatDuration, formatPlural, NONE } from "../formats";
import { at } from "../moment";
import { Figures } from "../parts/figures";
import { Empty, Loaded } from "../parts/states";
import { TableCard, TableHead } from "../parts/table";
import { linkTo } from "../routing";
import type { ClusterSlots, SlotDemand } from "./cluster-slots";
import { countFree, hueOf } from "./cluster-slots";
import {
  QuarantineButtons,
  QuarantineStatus,
  QuarantinesView,
  useQuarantineAction,
} from "./quarantines-view";
import { SlotGrid } from "./slot-grid";
import { TopicsView } from "./topics-view";

const MASTERS_REFRESH_MS = 5_000;

type Candidates = AnswerOf<"/api/v1/masters">["masters"];

export function ClusterPage() {
  const cluster = useQuery("/api/v1/cluster");
  const isNow = !useServer().isHistory && at.value === null;
  const masters = useQuery(
    "/api/v1/masters",
    {},
    { refresh: MASTERS_REFRESH_MS, hasMoment: false, enabled: isNow },
  );
  const candidates = (isNow && masters.body?.masters) || [];
  return (
    <>
      <h1>Cluster</h1>
      <Loaded query={cluster}>{(body) => <ClusterView cluster={body} candidates={candidates} />}</Loaded>
      {isNow && <TopicsView />}
    </>
  );
}

function ClusterView({ cluster, candidates }: { cluster: ClusterSlots; candidates: Candidates }) {
  const { isHistory } = useServer();
  const action = useQuarantineAction();
  const slots = cluster.task_executors.reduce((sum, each) => sum + each.slots.length, 0);
  const free = cluster.task_executors
    .filter((each) => each.quarantine === null)
    .reduce((sum, each) => sum + countFree(each), 0);
  const waiting = cluster.demands.reduce((sum, each) => sum + each.count, 0);
  return (
    <>
      <Figures
        of={[
          ["TaskExecutors", formatCount(cluster.task_executors.length)],
          ["Slots", formatCount(slots)],
          ["Free slots", formatCount(free)],
          ["Waiting requests", formatCount(waiting)],
          ["Jobs with slots", formatCount(cluster.jobs.length)],
        ]}
      />
      {cluster.demands.length > 0 && <Demands cluster={cluster} />}
      <QuarantinesView action={action} />
      <Masters cluster={cluster} candidates={candidates} />
      <h2>Slots</h2>
      {cluster.jobs.length > 0 && <Legend cluster={cluster} />}
      {cluster.task_executors.length === 0 ? (
        <Empty>
          No TaskExecutor is registered. <code>tailrace taskexecutor start</code> adds one.
        </Empty>
      ) : (
        <ul class="executors">
          {cluster.task_executors.map((each) => (
            <li key={each.id} class="card executor">
              <header>
                <b title={each.process}>{each.id}</b>
                <span class="muted small number">
                  {countFree(each)} of {each.slots.length} free
                </span>
              </header>
              <SlotGrid executor={each} jobs={cluster.jobs} />
              <p class="muted small number">
                {formatPlural(each.cpu_cores, "core")}, {formatBytes(each.memory)}
                {!isHistory && (
                  <>
                    , <a href={linkTo(["logs", each.id])}>logs</a>
                  </>
                )}
                {each.is_withdrawn && <span class="status warn">may be lost</span>}
                {each.quarantine !== null && (
                  <QuarantineStatus mode={each.quarantine.mode} title={each.quarantine.reason} />
                )}
              </p>
              {each.quarantine === null
                ? action !== null && <QuarantineButtons executor={each} action={action} />
                : each.state.includes(": ") && <p class="muted small">{each.state}</p>}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function Demands({ cluster }: { cluster: ClusterSlots }) {
  return (
    <>
      <h2>Requests that wait for slots</h2>
      <TableCard label="Requests that wait for slots">
        <TableHead columns={["Job", { number: "Slots" }, "Why", "Resources", { number: "For" }]} />
        <tbody>
          {cluster.demands.map((demand) => (
            <tr key={`${demand.job} ${demand.profile} ${demand.reason}`}>
              <td>
                <JobLink cluster={cluster} demand={demand} />
              </td>
              <td class="right">{formatCount(demand.count)}</td>
              <td>{demand.reason}</td>
              <td class="muted">{demand.profile}</td>
              <td class="right">{formatDuration(Math.max(0, cluster.now - demand.since))}</td>
            </tr>
          ))}
        </tbody>
      </TableCard>
    </>
  );
}

function JobLink({ cluster, demand }: { cluster: ClusterSlots; demand: SlotDemand }) {
  const job = cluster.jobs[demand.job];
  return job === undefined ? null : <a href={linkTo(["jobs", job.id])}>{job.name}</a>;
}

function Legend({ cluster }: { cluster: ClusterSlots }) {
  const held = new Map<number, number>();
  for (const each of cluster.task_executors) {
    for (const job of each.slots) held.set(job, (held.get(job) ?? 0) + 1);
  }
  return (
    <ul class="legend">
      {cluster.jobs.map((job, place) => (
        <li key={job.id}>
          <i class={hueOf(place)} aria-hidden="true" />
          <a href={linkTo(["jobs", job.id])}>{job.name}</a>
          <span class="muted number">{formatCount(held.get(place) ?? 0)}</span>
        </li>
      ))}
      <li>
        <i class="free" aria-hidden="true" />
        free
      </li>
    </ul>
  );
}

/** One process mostly leads all roles: the roles are grouped by the process. */
/** The processes that lead, as the log says, and those that stand by, as ZooKeeper says now. */
function Masters({ cluster, candidates }: { cluster: ClusterSlots; candidates: Candidates }) {
  const processes = new Map<string, { roles: string[]; jobs: number; epoch: number; since: number }>();
  for (const { role, process, epoch, since } of cluster.leaders) {
    const found = processes.get(process) ?? { roles: [], jobs: 0, epoch, since };
    if (role.startsWith("job_master/")) found.jobs += 1;
    else found.roles.push(role.replaceAll("_", " "));
    processes.set(process, {
      ...found,
      epoch: Math.max(found.epoch, epoch),
      since: Math.min(found.since, since),
    });
  }
  const standbys = candidates.filter((each) => !processes.has(each.process));
  return (
    <>
      <h2>Masters</h2>
      {processes.size + standbys.length === 0 ? (
        <Empty>No process leads the cluster.</Empty>
      ) : (
        <TableCard label="Masters">
          <TableHead columns={["Process", "Leads", { number: "Epoch" }, { number: "Since offset" }]} />
          <tbody>
            {[...processes].map(([process, { roles, jobs, epoch, since }]) => (
              <tr key={process}>
                <td>
                  <b>{process}</b>
                </td>
                <td>{[...roles, ...(jobs > 0 ? [formatPlural(jobs, "job")] : [])].join(", ")}</td>
                <td class="right">{epoch}</td>
                <td class="right">{formatCount(since)}</td>
              </tr>
            ))}
            {standbys.map(({ process }) => (
              <tr key={process}>
                <td>{process}</td>
                <td class="muted">nothing: stands by</td>
                <td class="right">{NONE}</td>
                <td class="right">{NONE}</td>
              </tr>
            ))}
          </tbody>
        </TableCard>
      )}
    </>
  );
}
