import { useQuery } from "../api/use-query";
import { Loaded } from "../parts/states";
import { TableCard } from "../parts/table";

/** The options of a job, and those of the cluster that it runs with. */
export function ConfigurationView({ id }: { id: string }) {
  const job = useQuery("/v1/jobs/{jobid}/config", { jobid: id }, { refresh: "never" });
  const own = useQuery("/api/v1/jobs/{jobid}/configuration", { jobid: id });
  const cluster = useQuery("/v1/jobs/{jobid}/jobmanager/config", { jobid: id }, { refresh: "never" });
  return (
    <>
      <h2>Job</h2>
      <Loaded query={job}>
        {({ "execution-config": execution }) => (
          <Options
            label="Options of the job"
            options={[
              ["Parallelism", String(execution["job-parallelism"])],
              ["Restart strategy", execution["restart-strategy"]],
              ...Object.entries(execution["user-config"]),
            ]}
          />
        )}
      </Loaded>
      <Loaded query={own}>
        {({ options }) => (
          <Options
            label="Values of the job's options"
            options={options.map(({ key, value, isChanged }) => [
              key,
              isChanged ? `${value} (changed since the job was started)` : value,
            ])}
          />
        )}
      </Loaded>
      <h2>Cluster</h2>
      <Loaded query={cluster}>
        {(entries) => (
          <Options
            label="Options of the cluster"
            options={entries.map(({ key, value }) => [key, value] as const)}
          />
        )}
      </Loaded>
    </>
  );
}

function Options({ label, options }: { label: string; options: readonly (readonly [string, string])[] }) {
  return (
    <TableCard label={label}>
      <tbody>
        {options.map(([key, value]) => (
          <tr key={key}>
            <th scope="row">
              <code>{key}</code>
            </th>
            <td>{value}</td>
          </tr>
        ))}
      </tbody>
    </TableCard>
  );
}
