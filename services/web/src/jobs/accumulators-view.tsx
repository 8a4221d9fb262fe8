import { useQuery } from "../api/use-query";
import { formatCount } from "../formats";
import { Empty, Loaded } from "../parts/states";
import { TableCard, TableHead } from "../parts/table";

/** What the subtasks of a job have counted. */
export function AccumulatorsView({ id }: { id: string }) {
  const accumulators = useQuery("/v1/jobs/{jobid}/accumulators", { jobid: id });
  return (
    <Loaded query={accumulators}>
      {({ "user-task-accumulators": found }) =>
        found.length === 0 ? (
          <Empty>The log has the counts of subtasks from their ends on. None has ended yet.</Empty>
        ) : (
          <TableCard label="Accumulators">
            <TableHead columns={["Name", "Type", { number: "Value" }]} />
            <tbody>
              {found.map((each) => (
                <tr key={each.name}>
                  <td>
                    <code>{each.name}</code>
                  </td>
                  <td class="muted">{each.type}</td>
                  <td class="right">
                    {Number.isFinite(Number(each.value)) ? formatCount(Number(each.value)) : each.value}
                  </td>
                </tr>
              ))}
            </tbody>
          </TableCard>
        )
      }
    </Loaded>
  );
}
