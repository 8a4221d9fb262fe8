// The topics of the cluster and of its jobs. They are those of now, and are read only while this is on the screen.

import type { AnswerOf } from "../api/client";
import { useQuery } from "../api/use-query";
import { formatCount, formatPlural, NONE } from "../formats";
import { Empty, Loaded } from "../parts/states";
import { TableCard, TableHead } from "../parts/table";
import { useVisible } from "../parts/use-visible";
import { linkTo } from "../routing";

const REFRESH_MS = 5_000;
const MOST_ROWS = 200;

type Topic = AnswerOf<"/api/v1/topics">["topics"][number];

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
        {({ topics: found }) =>
          found.length === 0 ? (
            <Empty>Kafka lists no topic of the cluster.</Empty>
          ) : (
            <TopicsTable topics={found} />
          )
        }
      </Loaded>
    </section>
  );
}

function TopicsTable({ topics }: { topics: readonly Topic[] }) {
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
          ]}
        />
        <tbody>
          {topics.slice(0, MOST_ROWS).map((topic) => (
            <TopicRow key={topic.name} topic={topic} />
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
function TopicRow({ topic: { name, job_id, partitions } }: { topic: Topic }) {
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
    </tr>
  );
}
