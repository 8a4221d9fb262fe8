import { useQuery } from "../api/use-query";
import { formatCount } from "../formats";
import { Empty, Loaded } from "../parts/states";

export function ClusterPage() {
  const overview = useQuery("/v1/overview");
  const executors = useQuery("/v1/taskmanagers");
  return (
    <>
      <h1>Cluster</h1>
      <Loaded query={overview}>
        {(body) => (
          <dl class="figures">
            <div>
              <dt>TaskExecutors</dt>
              <dd>{formatCount(body.taskmanagers)}</dd>
            </div>
            <div>
              <dt>Slots</dt>
              <dd>{formatCount(body["slots-total"])}</dd>
            </div>
          </dl>
        )}
      </Loaded>
      <Loaded query={executors}>
        {(body) =>
          body.taskmanagers.length === 0 ? (
            <Empty>No TaskExecutor is registered.</Empty>
          ) : (
            <ul>
              {body.taskmanagers.map((each) => (
                <li key={each.id}>{each.id}</li>
              ))}
            </ul>
          )
        }
      </Loaded>
    </>
  );
}
