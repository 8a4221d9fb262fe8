import { EventLink } from "../events/event-link";
import type { ActionState } from "./use-action";

/** Says what became of an action, with the event of the log that has its outcome. */
export function ActionOutcome({ state }: { state: ActionState }) {
  switch (state.kind) {
    case "ready":
      return null;
    case "sent":
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
