// The events of the log, a page at a time: up to the moment that is shown, or the newest ones.

import { lastOffset } from "../api/event-stream";
import { useQuery } from "../api/use-query";
import { at } from "../moment";
import { Empty, Loaded } from "../parts/states";
import { changeQuery, linkTo, route } from "../routing";
import { EventTable } from "./event-table";

const PAGE = 100;

export function EventsPage() {
  const { from, type, job } = route.value.query;
  const isFiltered = Boolean(type || job);
  const end = at.value !== null && /^\d+$/.test(at.value) ? Number(at.value) + 1 : lastOffset.value + 1;
  const start = from !== undefined ? Number(from) : isFiltered ? 0 : Math.max(0, end - PAGE);
  const events = useQuery(
    "/api/v1/events",
    {},
    {
      query: { from: start, limit: PAGE, type: type || undefined, job: job || undefined },
      enabled: end > 0 || from !== undefined,
    },
  );
  return (
    <>
      <h1>Events</h1>
      <Filters />
      <Loaded query={events}>
        {(body) => (
          <>
            {body.events.length === 0 ? (
              <Empty>The log has no such event from offset {start} on.</Empty>
            ) : (
              <EventTable label="Events" events={body.events} />
            )}
            <nav class="buttons" aria-label="Pages of events">
              {start > 0 && (
                <a
                  class="button"
                  href={linkTo(["events"], { from: String(Math.max(0, start - PAGE)), ...filters() })}
                >
                  Earlier
                </a>
              )}
              {body.next < lastOffset.value + 1 && (
                <a class="button" href={linkTo(["events"], { from: String(body.next), ...filters() })}>
                  Later
                </a>
              )}
            </nav>
          </>
        )}
      </Loaded>
    </>
  );
}

function filters(): Record<string, string | null> {
  const { type, job } = route.value.query;
  return { type: type || null, job: job || null };
}

function Filters() {
  const { type = "", job = "" } = route.value.query;
  const change = (name: string) => (event: { currentTarget: { value: string } }) =>
    changeQuery({ [name]: event.currentTarget.value.trim() || null, from: null }, true);
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()}>
      <label>
        Type
        <input value={type} placeholder="SubmitTask" onChange={change("type")} />
      </label>
      <label>
        Job
        <input value={job} placeholder="Id of a job" onChange={change("job")} />
      </label>
    </form>
  );
}
