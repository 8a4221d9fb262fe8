import { EventLink } from "../events/event-link";
import type { ActionState } from "./use-action";

/** Says what became of an action, with the event of the log that has its outcome. */
export function ActionOutcome({ state }: { state: ActionState }) {
  switch (state.kind) {
    case "ready":
      return null;
    case "sent":
      // Announced once, and not with each percent.
      if (state.share !== undefined && state.share < 1) {
        const percent = Math.floor(state.share * 100);
        return (
          <div class="sending">
            <progress max={100} value={percent} aria-label="Upload" />
            <p class="small muted number">{percent} % are sent.</p>
          </div>
        );
      }
      return (
        <p class="note" role="status">
          Waiting for the cluster…
        </p>
      );
    case "done":
      return (
        <p class="note good" role="status">
          {state.text}
          {state.offset !== null && (
            <>
              {" "}
              The log has it at offset <EventLink offset={state.offset} />.
            </>
          )}
        </p>
      );
    case "failed":
      return (
        <p class="note bad" role="alert">
          {state.text}
        </p>
      );
  }
}
