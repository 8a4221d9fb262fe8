// The topics of the cluster and of its jobs, and what jobs read. They are those of now, and are read only while this is on
// the screen.

import type { AnswerOf } from "../api/client";
import { useQuery } from "../api/use-query";
import { formatBytes, formatCount, formatPlural, NONE } from "../formats";
import { Empty, Loaded } from "../parts/states";
import { TableCard, TableHead } from "../parts/table";
import { useVisible } from "../parts/use-visible";
import { linkTo } from "../routing";

const REFRESH_MS = 5_000;
const MOST_ROWS = 200;

type TopicList = AnswerOf<"/api/v1/topics">;
type Topic = TopicList["topics"][number];
type Reader = TopicList["readers"][number];

export function TopicsView() {
  const [section, isVisible] = useVisible<HTMLElement>();
  const topics = useQuery(
    "/api/v1/topics",
    {},
    { refresh: REFRESH_MS, hasMoment: false, enabled: isVisible },
  );
  return (
    <section ref={section} aria-labelledby="topics">
      <h2 id="topics">Topics</h2>
      <Loaded query={topics}>
        {({ topics: found, readers }) => (
          <>
            {found.length === 0 ? (
              <Empty>Kafka lists no topic of the cluster.</Empty>
            ) : (
              <TopicsTable topics={found} readers={readers} />
            )}
            {readers.length > 0 && <ReadersTable readers={readers} />}
          </>
        )}
      </Loaded>
    </section>
  );
}

function TopicsTable({ topics, readers }: { topics: readonly Topic[]; readers: readonly Reader[] }) {
  const lags = new Map<string, number>();
  for (const { topic, lag } of readers) lags.set(topic, (lags.get(topic) ?? 0) + lag);
  return (
    <>
      <TableCard label="Topics of the cluster">
        <TableHead
          columns={[
            "Topic",
            { number: "Partitions" },
            { number: "First offset" },
            { number: "Next offset" },
            { number: "Offsets" },
            { number: "Size" },
            { number: "Lag" },
          ]}
        />
        <tbody>
          {topics.slice(0, MOST_ROWS).map((topic) => (
            <TopicRow key={topic.name} topic={topic} lag={lags.get(topic.name)} />
          ))}
        </tbody>
      </TableCard>
      {topics.length > MOST_ROWS && (
        <p class="muted small">and {formatPlural(topics.length - MOST_ROWS, "more topic")}</p>
      )}
    </>
  );
}

/** Offsets of several partitions: the smallest first one, the largest next one, and the sum of what is between. */
function TopicRow({
  topic: { name, job_id, partitions, size },
  lag,
}: {
  topic: Topic;
  lag: number | undefined;
}) {
  const known = partitions.filter((each) => each !== null);
  const isKnown = known.length > 0;
  return (
    <tr>
      <td>{job_id === null ? <b>{name}</b> : <a href={linkTo(["jobs", job_id])}>{name}</a>}</td>
      <td class="right">{formatCount(partitions.length)}</td>
      <td class="right">{isKnown ? formatCount(Math.min(...known.map((each) => each.first))) : NONE}</td>
      <td class="right">{isKnown ? formatCount(Math.max(...known.map((each) => each.end))) : NONE}</td>
      <td class="right">
        {isKnown ? formatCount(known.reduce((sum, each) => sum + each.end - each.first, 0)) : NONE}
      </td>
      <td class="right nowrap">{size == null ? NONE : formatBytes(size)}</td>
      <td class="right">{lag === undefined ? NONE : formatCount(lag)}</td>
    </tr>
  );
}

/** The vertices that read channels and topics of users, the farthest behind first. */
function ReadersTable({ readers }: { readers: readonly Reader[] }) {
  const sorted = [...readers].sort((one, other) => other.lag - one.lag);
  return (
    <>
      <h2>What jobs read</h2>
      <TableCard label="What jobs read">
        <TableHead
          columns={["Job", "Vertex", "Topic", { number: "Partitions" }, { number: "Lag in offsets" }]}
        />
        <tbody>
          {sorted.slice(0, MOST_ROWS).map((each) => (
            <tr key={`${each.topic} ${each.job_id} ${each.vertex_id}`}>
              <td>
                <a href={linkTo(["jobs", each.job_id])}>{each.job}</a>
              </td>
              <td>
                <a href={linkTo(["jobs", each.job_id, "vertices", each.vertex_id])}>{each.vertex}</a>
              </td>
              <td>{each.topic}</td>
              <td class="right">{formatCount(each.partitions)}</td>
              <td class="right">{formatCount(each.lag)}</td>
            </tr>
          ))}
        </tbody>
      </TableCard>
      {readers.length > MOST_ROWS && (
        <p class="muted small">and {formatCount(readers.length - MOST_ROWS)} more</p>
      )}
    </>
  );
}
