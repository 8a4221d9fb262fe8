// The failures of a job's tasks, newest first, each with its root cause and its stack trace.

import { useQuery } from "../api/use-query";
import { formatExactTime, formatTime } from "../formats";
import { Empty, Loaded } from "../parts/states";

export function ExceptionsView({ id }: { id: string }) {
  const exceptions = useQuery("/v1/jobs/{jobid}/exceptions", { jobid: id }, { query: { maxExceptions: 50 } });
  return (
    <Loaded query={exceptions}>
      {({ exceptionHistory: { entries, truncated } }) =>
        entries.length === 0 ? (
          <Empty>No task has failed.</Empty>
        ) : (
          <>
            {entries.map((each, index) => (
              <details key={`${each.timestamp} ${each.taskName}`} class="card exception" open={index === 0}>
                <summary>
                  <b class="bad">{rootCauseOf(each.stacktrace)}</b>
                  <span class="muted small">
                    <span class="number" title={formatExactTime(each.timestamp)}>
                      {formatTime(each.timestamp)}
                    </span>
                    {each.taskName !== null && ` · ${each.taskName}`}
                    {each.taskManagerId !== null && ` · ${each.taskManagerId}`}
                  </span>
                </summary>
                {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard */}
                <pre tabIndex={0}>{each.stacktrace}</pre>
              </details>
            ))}
            {truncated && <p class="muted">Older failures are not kept.</p>}
          </>
        )
      }
    </Loaded>
  );
}

/** Returns the line that names the root cause: Python prints the first exception of a chain first, after its trace. */
export function rootCauseOf(text: string): string {
  const lines = text.trim().split("\n");
  const trace = lines.slice(lines.findIndex((line) => line.startsWith("Traceback")) + 1);
  const cause = trace.find((line) => /^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Warning)\b/.test(line));
  return cause ?? lines.at(-1) ?? text;
}
