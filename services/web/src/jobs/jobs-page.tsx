import { useQuery } from "../api/use-query";
import { formatDuration, formatTime } from "../formats";
import { Empty, Loaded } from "../parts/states";
import { Status } from "../parts/status";
import { TableCard } from "../parts/table";
import { linkTo } from "../routing";

export function JobsPage() {
  const overview = useQuery("/v1/jobs/overview");
  return (
    <>
      <h1>Jobs</h1>
      <Loaded query={overview}>
        {({ jobs }) =>
          jobs.length === 0 ? (
            <Empty>No job was submitted.</Empty>
          ) : (
            <TableCard label="Jobs">
              <thead>
                <tr>
                  <th scope="col">Name</th>
                  <th scope="col">Status</th>
                  <th scope="col">Submitted</th>
                  <th scope="col" class="right">
                    Duration
                  </th>
                </tr>
              </thead>
              <tbody>
                {jobs.map((job) => (
                  <tr key={job.jid}>
                    <td>
                      <a href={linkTo(["jobs", job.jid])}>{job.name}</a>
                    </td>
                    <td>
                      <Status of={job.state} />
                    </td>
                    <td class="number">{formatTime(job["start-time"])}</td>
                    <td class="number right">{formatDuration(job.duration)}</td>
                  </tr>
                ))}
              </tbody>
            </TableCard>
          )
        }
      </Loaded>
    </>
  );
}
