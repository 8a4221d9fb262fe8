// The log files of the leading jobmanager and of the TaskExecutors. They are those of now, whatever moment is shown.

import type { AnswerOf } from "../api/client";
import { fillPath } from "../api/client";
import { useQuery } from "../api/use-query";
import { formatBytes, formatTime } from "../formats";
import { Empty, Loaded } from "../parts/states";
import { linkTo } from "../routing";
import { LogLines } from "./log-lines";

const JOBMANAGER = "jobmanager";
const REFRESH_MS = 5_000;

type LogFile = AnswerOf<"/v1/jobmanager/logs">["logs"][number];

/** `process`: "jobmanager", or the id of a TaskExecutor. `file`: the name of a file of it, if one is shown. */
export function LogsPage({ process = JOBMANAGER, file }: { process?: string; file?: string | undefined }) {
  const executors = useQuery("/v1/taskmanagers", {}, { hasMoment: false });
  const ids = executors.body?.taskmanagers.map((each) => each.id) ?? [];
  return (
    <>
      <h1>Logs</h1>
      <nav class="tabs" aria-label="Processes">
        {[JOBMANAGER, ...ids].map((id) => (
          <a key={id} href={linkTo(["logs", id])} aria-current={id === process ? "page" : undefined}>
            {id}
          </a>
        ))}
      </nav>
      {process === JOBMANAGER ? (
        <JobManagerLogs file={file} />
      ) : (
        <TaskExecutorLogs key={process} id={process} file={file} />
      )}
    </>
  );
}

function JobManagerLogs({ file }: { file: string | undefined }) {
  const files = useQuery("/v1/jobmanager/logs", {}, { refresh: REFRESH_MS, hasMoment: false });
  return (
    <Loaded query={files}>
      {({ logs }) => <Files process={JOBMANAGER} folder="/v1/jobmanager/logs" files={logs} shown={file} />}
    </Loaded>
  );
}

function TaskExecutorLogs({ id, file }: { id: string; file: string | undefined }) {
  const values = { taskmanagerid: id };
  const files = useQuery("/v1/taskmanagers/{taskmanagerid}/logs", values, {
    refresh: REFRESH_MS,
    hasMoment: false,
  });
  const folder = fillPath("/v1/taskmanagers/{taskmanagerid}/logs", values).slice(1);
  return (
    <Loaded query={files}>
      {({ logs }) => <Files process={id} folder={folder} files={logs} shown={file} />}
    </Loaded>
  );
}

function Files({
  process,
  folder,
  files,
  shown,
}: {
  process: string;
  folder: string;
  files: readonly LogFile[];
  shown: string | undefined;
}) {
  const name = shown ?? files[0]?.name;
  if (name === undefined) return <Empty>The process has no log files. It may log to a terminal.</Empty>;
  return (
    <>
      <nav class="log-files" aria-label="Log files">
        {files.map((each) => (
          <a
            key={each.name}
            href={linkTo(["logs", process, each.name])}
            aria-current={each.name === name ? "page" : undefined}
            title={`${formatBytes(each.size)}, ${formatTime(each.mtime)}`}
          >
            {each.name} <span class="muted small">{formatBytes(each.size)}</span>
          </a>
        ))}
      </nav>
      <LogLines key={`${folder} ${name}`} folder={folder} name={name} />
    </>
  );
}
