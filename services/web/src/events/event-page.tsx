// One event of the log: what it says, what caused it, and what it has caused.

import { useQuery } from "../api/use-query";
import { showMoment } from "../moment";
import { Empty, Loaded } from "../parts/states";
import { EffectTree } from "./effect-tree";
import { EventFields } from "./event-fields";
import { HistoryLines } from "./history-lines";

const ONCE = { refresh: "never", hasMoment: false } as const;

export function EventPage({ offset }: { offset: number }) {
  const found = useQuery("/api/v1/events/{offset}", { offset }, ONCE);
  const causes = useQuery("/api/v1/events/{offset}/causes", { offset }, ONCE);
  const effects = useQuery("/api/v1/events/{offset}/effects", { offset }, ONCE);
  return (
    <>
      {found.body === null && <h1>Event {offset}</h1>}
      <Loaded query={found}>
        {(event) => (
          <>
            <div class="title">
              <h1>{event.type}</h1>
              <button type="button" onClick={() => showMoment(String(offset))}>
                Show the cluster at this event
              </button>
            </div>
            <div class="columns">
              <section class="card">
                <h2>Header</h2>
                <EventFields of={{ offset, ...event.header }} />
              </section>
              <section class="card">
                <h2>Fields</h2>
                <EventFields of={event.fields} />
              </section>
            </div>
            <h2>What caused it</h2>
            <Loaded query={causes}>
              {(chain) => (
                <>
                  <p class="muted">It began so: {chain.text}.</p>
                  <HistoryLines label="Causes, back to the first one" lines={chain.lines} />
                </>
              )}
            </Loaded>
            <h2>What it caused</h2>
            <Loaded query={effects}>
              {({ tree }) =>
                tree.effects.length === 0 ? (
                  <Empty>It has caused no event.</Empty>
                ) : (
                  <section class="card">
                    <EffectTree of={tree} />
                  </section>
                )
              }
            </Loaded>
          </>
        )}
      </Loaded>
    </>
  );
}
