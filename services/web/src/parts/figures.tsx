import type { ComponentChildren } from "preact";
import { toneOf } from "./status";

export type FigureList = readonly (readonly [name: string, value: ComponentChildren])[];

/** Names with values, the most important things of a page. */
export function Figures({ of }: { of: FigureList }) {
  return (
    <dl class="figures">
      {of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A share of a whole as a bar: 0 to 1. */
export function Bar({ share, tone, label }: { share: number; tone: string; label: string }) {
  const percent = Math.round(Math.min(1, Math.max(0, share)) * 100);
  return (
    <div class="bar" role="img" aria-label={`${label}: ${percent} %`}>
      <i class={tone} style={{ width: `${percent}%` }} />
    </div>
  );
}

/** The states of many tasks as one bar of parts. */
export function StateBar({ tasks }: { tasks: Readonly<Record<string, number>> }) {
  const known = Object.entries(tasks).filter(([, count]) => count > 0);
  const text = known.map(([state, count]) => `${count} ${state.toLowerCase()}`).join(", ");
  return (
    <div class="bar parts" role="img" aria-label={`Tasks: ${text || "none"}`} title={text}>
      {known.map(([state, count]) => (
        <i key={state} class={toneOf(state)} style={{ flexGrow: String(count) }} />
      ))}
    </div>
  );
}
