import type { AnswerOf } from "../api/client";
import { formatCount } from "../formats";
import { EventLink } from "./event-link";
import { LineText } from "./history-lines";

type Effect = AnswerOf<"/api/v1/events/{offset}/effects">["tree"];

/** The effects of an event, each below its cause. */
export function EffectTree({ of }: { of: Effect }) {
  return (
    <ul class="effects">
      {of.effects.map((effect) => (
        <li key={effect.line.offset}>
          <EventLink offset={effect.line.offset} /> <span class="muted">{effect.line.who}</span>{" "}
          <LineText line={effect.line} />
          {effect.effects.length > 0 && <EffectTree of={effect} />}
          {effect.left_out > 0 && <p class="muted">and {formatCount(effect.left_out)} more</p>}
        </li>
      ))}
    </ul>
  );
}
