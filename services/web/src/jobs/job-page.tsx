import { useQuery } from "../api/use-query";
import { Loaded } from "../parts/states";
import { Status } from "../parts/status";

export function JobPage({ id }: { id: string; parts: readonly string[] }) {
  const job = useQuery("/v1/jobs/{jobid}", { jobid: id });
  return (
    <Loaded query={job}>
      {(body) => (
        <h1>
          {body.name} <Status of={body.state} />
        </h1>
      )}
    </Loaded>
  );
}
