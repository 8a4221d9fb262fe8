// The events of the log, a page at a time: the newest ones up to the moment that is shown, those up to `to` in the
// address, or those from `from` on.

import { useQuery } from "../api/use-query";
import { at } from "../moment";
import { Empty, Loaded } from "../parts/states";
import { changeQuery, linkTo, route } from "../routing";
import { EventTable } from "./event-table";

const PAGE = 100;

export function EventsPage() {
  const { from, to, type, job } = route.value.query;
  const isNewest = from === undefined && to === undefined;
  const events = useQuery(
    "/api/v1/events",
    {},
    {
      query: {
        ...(from === undefined ? { part: "last" } : { from }),
        to: to ?? at.value ?? undefined,
        type: type || undefined,
        job: job || undefined,
        limit: PAGE,
      },
      hasMoment: false,
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
              <Empty>The log has no such event here.</Empty>
            ) : (
              <EventTable label="Events" events={body.events} />
            )}
            <nav class="buttons" aria-label="Pages of events">
              <PageLink title="Earlier" query={earlier(body.events[0]?.offset)} />
              <PageLink title="Later" query={isNewest ? null : { from: String(body.next) }} />
              <PageLink title="Newest" query={isNewest ? null : {}} />
            </nav>
          </>
        )}
      </Loaded>
    </>
  );
}

/** Returns the address of the page before an event; null if there is none. */
function earlier(first: number | undefined): { to: string } | null {
  return first === undefined || first === 0 ? null : { to: String(first - 1) };
}

/** A link to another page of the same events; null: there is no such page. */
function PageLink({ title, query }: { title: string; query: Readonly<Record<string, string>> | null }) {
  if (query === null) return null;
  const { type, job } = route.value.query;
  return (
    <a class="button" href={linkTo(["events"], { type: type || null, job: job || null, ...query })}>
      {title}
    </a>
  );
}

function Filters() {
  const { type = "", job = "" } = route.value.query;
  const change = (name: string) => (event: { currentTarget: { value: string } }) =>
    changeQuery({ [name]: event.currentTarget.value.trim() || null, from: null, to: null }, true);
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
