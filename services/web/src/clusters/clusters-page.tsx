// The clusters of a history server: each has a page of its own.

import type { ClusterEntry, PlaceError } from "../api/openapi";
import { useQuery } from "../api/use-query";
import { formatCount, formatExactTime, formatTime, NONE } from "../formats";
import { Empty, Loaded } from "../parts/states";
import { TableCard, TableHead } from "../parts/table";

const REFRESH_MS = 5_000;

export function ClustersPage() {
  const clusters = useQuery("/api/v1/clusters", {}, { refresh: REFRESH_MS, hasMoment: false });
  return (
    <>
      <h1>Clusters</h1>
      <Loaded query={clusters}>
        {(body) => (
          <>
            {body.clusters.length === 0 ? (
              <Empty>The server has found no log.</Empty>
            ) : (
              <ClusterTable clusters={body.clusters} />
            )}
            {body.unreadable.length > 0 && <PlaceTable places={body.unreadable} />}
          </>
        )}
      </Loaded>
    </>
  );
}

function ClusterTable({ clusters }: { clusters: readonly ClusterEntry[] }) {
  return (
    <TableCard label="Clusters">
      <TableHead
        columns={["Name", { number: "Jobs" }, "Last event", { number: "Its offset" }, "Place of the log"]}
      />
      <tbody>
        {clusters.map((each) => (
          <tr key={each.name}>
            <td>
              <a href={`.${each.path}/`}>{each.name}</a>
            </td>
            <td class="right">{each.last_offset === null ? NONE : formatCount(each.jobs)}</td>
            <td class="nowrap" title={each.last_time === null ? "" : formatExactTime(each.last_time)}>
              {each.last_time === null ? NONE : formatTime(each.last_time)}
            </td>
            <td class="right">{each.last_offset === null ? NONE : formatCount(each.last_offset)}</td>
            <td class="about">
              {each.place}
              {each.error !== null && <div class="bad small">{each.error}</div>}
            </td>
          </tr>
        ))}
      </tbody>
    </TableCard>
  );
}

function PlaceTable({ places }: { places: readonly PlaceError[] }) {
  return (
    <>
      <h2>Not readable</h2>
      <TableCard label="Places without a readable log">
        <TableHead columns={["Place", "Why"]} />
        <tbody>
          {places.map(({ place, error }) => (
            <tr key={place}>
              <td class="about">{place}</td>
              <td class="about">{error}</td>
            </tr>
          ))}
        </tbody>
      </TableCard>
    </>
  );
}
