// What changed in the states between two moments: `#/difference?from=OFFSET`, up to the moment that is shown.

import type { AnswerOf } from "../api/client";
import { useQuery } from "../api/use-query";
import { EventLink } from "../events/event-link";
import { formatCount } from "../formats";
import { at, showMoment } from "../moment";
import { Empty, Loaded } from "../parts/states";
import { TableCard, TableHead } from "../parts/table";
import { changeQuery, route } from "../routing";

type Change = AnswerOf<"/api/v1/diff">["changes"][number];

const LONGEST_TEXT = 300;
const MOST_ROWS = 500;

export function DifferencePage() {
  const { from = "" } = route.value.query;
  const difference = useQuery(
    "/api/v1/diff",
    {},
    {
      query: { from, to: at.value ?? undefined },
      refresh: "never",
      hasMoment: false,
      enabled: from !== "",
    },
  );
  return (
    <>
      <h1>What changed</h1>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>
          From
          <input
            value={from}
            placeholder="An offset, a time, or -10m"
            onChange={(event) => changeQuery({ from: event.currentTarget.value.trim() || null })}
          />
        </label>
        <label>
          To
          <input
            value={at.value ?? ""}
            placeholder="Now"
            onChange={(event) => showMoment(event.currentTarget.value.trim() || null)}
          />
        </label>
      </form>
      {from === "" ? (
        <Empty>Name the first moment. The second one is the moment that the page shows.</Empty>
      ) : (
        <Loaded query={difference}>
          {({ before, after, changes }) => (
            <>
              <p class="muted">
                {formatCount(changes.length)} changes from offset <EventLink offset={before.offset} /> to{" "}
                <EventLink offset={after.offset} />.
              </p>
              {changes.length > 0 && <Changes of={changes} />}
              {changes.length > MOST_ROWS && <p class="muted">The first {MOST_ROWS} are shown.</p>}
            </>
          )}
        </Loaded>
      )}
    </>
  );
}

function Changes({ of }: { of: readonly Change[] }) {
  return (
    <TableCard label="Changes">
      <TableHead columns={["Where", "Before", "After"]} />
      <tbody>
        {of.slice(0, MOST_ROWS).map((change) => {
          const path = change.path.join(" › ");
          return (
            <tr key={path}>
              <td class="about">{path}</td>
              <td class="about">{showValue(change.before)}</td>
              <td class="about">{showValue(change.after)}</td>
            </tr>
          );
        })}
      </tbody>
    </TableCard>
  );
}

function showValue(value: unknown) {
  if (value === undefined || value === null) return <span class="muted">–</span>;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text;
}
