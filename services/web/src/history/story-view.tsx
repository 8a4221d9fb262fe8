// The story of a job, TaskExecutor, slot, checkpoint or role, in words, up to the moment that is shown.

import type { AnswerOf } from "../api/client";
import { useQuery } from "../api/use-query";
import { EventLink } from "../events/event-link";
import { HistoryLines } from "../events/history-lines";
import { at } from "../moment";
import { Empty, Loaded } from "../parts/states";

type Story = AnswerOf<"/api/v1/story">;
type Reference = NonNullable<Story["began"]>;

/** `entity`: an id, a name, or KIND:ID. `isOver`: its story grows no more. */
export function StoryView({ entity, isOver = false }: { entity: string; isOver?: boolean }) {
  const story = useQuery(
    "/api/v1/story",
    {},
    {
      query: { entity, to: at.value ?? undefined },
      refresh: isOver ? "never" : "log",
      hasMoment: false,
    },
  );
  return (
    <Loaded query={story}>
      {(body) => (
        <>
          <p>
            <b>
              {body.kind} {body.names[0] ?? body.id}
            </b>
            : <span class={body.failed ? "bad" : ""}>{body.outcome}</span>
          </p>
          <References story={body} />
          {body.lines.length === 0 ? (
            <Empty>The log has no events of it.</Empty>
          ) : (
            <HistoryLines label="Story" lines={body.lines} />
          )}
        </>
      )}
    </Loaded>
  );
}

function References({ story }: { story: Story }) {
  const rows: readonly (readonly [string, Reference | null | undefined])[] = [
    ["It began", story.began],
    ["because of", story.because],
    ["It ended", story.ended],
    ["because of", story.ended_because],
  ];
  return (
    <ul class="references">
      {rows.map(([label, reference]) =>
        reference == null ? null : (
          <li key={`${label} ${reference.offset}`}>
            {label} <EventLink offset={reference.offset} />: {reference.text}
          </li>
        ),
      )}
    </ul>
  );
}
